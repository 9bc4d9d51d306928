"""Native communicators by name: gloo on any machine, NCCL on CUDA, HCCL on Ascend.

To add a backend, add an entry to ``BACKENDS``; the conformance tests run over all that are there.
Torch is imported when one is used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.layout import DTYPES
from sembridge.live.faults import DeadlineExceeded, PeerClosed
from sembridge.live.staging import pageable

Tensor = Any
Device = Any
Store = Any

LOOPBACK = "lo"


@lru_cache(maxsize=1)
def torch() -> Any:
    """The torch module, without the device back ends that would load themselves.

    Raises:
        BadInput: torch is not installed, or does not load.
    """
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    try:
        importlib.import_module("torch.distributed")
        return importlib.import_module("torch")
    except (ImportError, RuntimeError) as error:
        raise BadInput(f"a live run needs the extra: sembridge[live] ({error})") from error


class Backend(Struct, frozen=True, kw_only=True):
    """A communicator library.

    ``absent`` says why it cannot run here, or None; ``device`` is where lane ``i`` computes;
    ``group`` joins a process group of the given size; ``reduces`` names the dtypes that it sums
    natively; ``allocate`` gives host memory for what crosses (None: tensors lie in host memory
    and cross from where they lie).
    """

    name: str
    stack: str
    absent: Callable[[], str | None]
    device: Callable[[int], Device]
    group: Callable[[Store, int, int, float], Any]
    reduces: frozenset[str]
    allocate: Callable[[int], memoryview] | None = None


def _gloo_group(store: Store, rank: int, size: int, timeout_s: float) -> Any:
    dist = torch().distributed
    options = dist.ProcessGroupGloo._Options()
    interface = os.environ.get("GLOO_SOCKET_IFNAME", LOOPBACK)
    options._devices = [dist.ProcessGroupGloo.create_device(interface=interface)]
    options._timeout = timedelta(seconds=timeout_s)
    return dist.ProcessGroupGloo(store, rank, size, options)


def _gloo_absent() -> str | None:
    return None if torch().distributed.is_gloo_available() else "torch was built without gloo"


def _nccl_absent() -> str | None:
    if not torch().cuda.is_available():
        return "no CUDA device"
    return None if torch().distributed.is_nccl_available() else "torch was built without NCCL"


def _nccl_group(store: Store, rank: int, size: int, timeout_s: float) -> Any:
    dist = torch().distributed
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=timeout_s)
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _pinned(size: int) -> memoryview:
    return memoryview(torch().empty(size, dtype=torch().uint8, pin_memory=True).numpy())


@lru_cache(maxsize=1)
def _torch_npu() -> Any:
    torch()
    return importlib.import_module("torch_npu")


def _hccl_absent() -> str | None:
    try:
        _torch_npu()
    except (ImportError, RuntimeError, OSError) as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        return f"torch_npu or CANN does not load: {first[0]}"
    return None if torch().npu.is_available() else "no Ascend device"


def _hccl_group(store: Store, rank: int, size: int, timeout_s: float) -> Any:
    hccl = _torch_npu()._C._distributed_c10d.ProcessGroupHCCL
    options = hccl.Options()
    options.op_timeout = timedelta(seconds=timeout_s)
    return hccl(store, rank, size, options)


_FLOATS = frozenset(("float32", "float16", "bfloat16"))
_NUMBERS = _FLOATS | {"float64", "int8", "uint8", "int32", "int64"}

BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="gloo",
            stack="cpu",
            absent=_gloo_absent,
            device=lambda lane: torch().device("cpu"),
            group=_gloo_group,
            reduces=_NUMBERS,
        ),
        Backend(
            name="gloo-staged",
            stack="cpu",
            absent=_gloo_absent,
            device=lambda lane: torch().device("cpu"),
            group=_gloo_group,
            reduces=_NUMBERS,
            allocate=pageable,
        ),
        Backend(
            name="nccl",
            stack="cuda",
            absent=_nccl_absent,
            device=lambda lane: torch().device("cuda", lane % torch().cuda.device_count()),
            group=_nccl_group,
            reduces=_NUMBERS,
            allocate=_pinned,
        ),
        Backend(
            name="hccl",
            stack="cann",
            absent=_hccl_absent,
            device=lambda lane: torch().device("npu", lane % torch().npu.device_count()),
            group=_hccl_group,
            reduces=_FLOATS | {"int8", "int32", "int64"},
            allocate=_pinned,
        ),
    )
}
"""``gloo-staged`` treats host memory as a device's, so that staging runs where no device is."""


def backend(name: str) -> Backend:
    """A backend that can run here.

    Raises:
        BadInput: there is none of the name, or it cannot run here.
    """
    if name not in BACKENDS:
        raise BadInput(f"no backend {name!r}; there are {', '.join(BACKENDS)}")
    if (reason := BACKENDS[name].absent()) is not None:
        raise BadInput(f"backend {name} cannot run here: {reason}")
    return BACKENDS[name]


def torch_dtype(name: str) -> Any:
    """The torch dtype of a contract's dtype name."""
    return getattr(torch(), name)


class Communicator:
    """The native communicator of some ranks of one domain; tensors are flat and contiguous.

    Every call takes part of all members, in the same order everywhere; shapes and dtypes agree
    because all derive them from one schedule.

    A failed collective ends the communicator, as it ends the run.
    """

    def __init__(self, backend: Backend, group: Any, members: Sequence[str], local: str) -> None:
        self.backend, self.group = backend, group
        self.members, self.local = tuple(members), local

    def broadcast(self, data: Tensor, src: str) -> None:
        """Overwrite ``data`` (bytes) with the source's, in place."""
        options = torch().distributed.BroadcastOptions()
        options.rootRank = self.members.index(src)
        options.rootTensor = 0
        self._wait(lambda: self.group.broadcast([data], options))

    def all_gather(self, data: Tensor) -> list[Tensor]:
        """Every member's ``data`` (bytes, one size), in the order of the members."""
        out = [torch().empty_like(data) for _ in self.members]
        self._wait(lambda: self.group.allgather([out], [data]))
        return out

    def reduces(self, dtype: str) -> bool:
        """Whether :meth:`all_reduce` has the dtype."""
        return dtype in self.backend.reduces

    def all_reduce(self, data: Tensor, operator: str) -> None:
        """Reduce elementwise over all members, in place."""
        dist = torch().distributed
        options = dist.AllreduceOptions()
        options.reduceOp = {
            "sum": dist.ReduceOp.SUM,
            "product": dist.ReduceOp.PRODUCT,
            "minimum": dist.ReduceOp.MIN,
            "maximum": dist.ReduceOp.MAX,
        }[operator]
        self._wait(lambda: self.group.allreduce([data], options))

    def _wait(self, post: Callable[[], Any]) -> None:
        with native_errors(self.local, self.members):
            post().wait()


@contextmanager
def native_errors(local: str, members: Sequence[str]) -> Generator[None]:
    """Type what a communicator library says of a dead or a late member.

    Raises:
        PeerClosed, DeadlineExceeded: instead of RuntimeError; the peers are the other members.
    """
    try:
        yield
    except RuntimeError as error:
        said = str(error).partition("\n")[0].partition(". ")[0]
        late = "timed out" in said.lower() or "timeout" in said.lower()
        kind = DeadlineExceeded if late else PeerClosed
        others = ", ".join(m for m in members if m != local)
        raise kind(f"native collective: {said}", local=local, peer=others) from error


assert all(b.reduces <= DTYPES.keys() for b in BACKENDS.values())
