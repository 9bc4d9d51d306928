"""A result on disk: ``NAME.json`` and its raw rows ``NAME.jsonl``, read back and compared.

Everything outside ``volatile`` (the key of the document, the folder of the raw rows) is the same
byte for byte on every run with the same seed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from experiments.ledger import Line, ledger, line, own_line
from experiments.registry import Result, Settings, Table
from sembridge import __version__, io
from sembridge.errors import BadInput

ROOT = Path(__file__).parent.parent
VERSIONED = (
    "matplotlib",
    "msgspec",
    "numpy",
    "pandas",
    "scipy",
    "torch",
    "transformers",
    "z3-solver",
)
SOURCES = ("sembridge", "oracle", "mutations", "experiments")


class Manifest(Struct, frozen=True, kw_only=True):
    """What reproduces a result."""

    command: str
    seed: int
    full: bool


class Provenance(Struct, frozen=True, kw_only=True):
    """Where a result comes from: code, versions, machine, link, and how long it took."""

    commit: str | None
    dirty: bool | None
    sembridge: str
    python: str
    packages: Mapping[str, str]
    system: str
    machine: str
    cpu: str
    cores: int
    link: str
    seconds: float
    load_average: tuple[float, float, float] | None = None
    """Over 1, 5 and 15 minutes, when the run had ended."""


class Varying(Struct, frozen=True, kw_only=True):
    """What differs from run to run, apart from everything else."""

    claims: tuple[Line, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance


class Document(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.result/2",
    forbid_unknown_fields=True,
):
    """A result with its claims compared; the raw rows stand in files beside it."""

    name: str
    how: str
    manifest: Manifest
    claims: tuple[Line, ...]
    checks: tuple[Line, ...]
    tables: tuple[Table, ...]
    volatile: Varying

    @property
    def lines(self) -> tuple[Line, ...]:
        """Every claim and check, those on times last."""
        return (*self.claims, *self.checks, *self.volatile.claims)


def document(result: Result, settings: Settings, seconds: float) -> Document:
    """A result beside the ledger: each of its experiment's claims compared.

    Raises:
        ValueError: it measures what no claim of its experiment asks for.
    """
    claims = [c for c in ledger().values() if c.experiment == result.name]
    timed = result.volatile.measured
    strangers = {*result.measured, *timed} - {c.name for c in claims}
    if strangers:
        raise ValueError(f"{result.name} measures what no claim asks for: {sorted(strangers)}")
    return Document(
        name=result.name,
        how=result.how,
        manifest=Manifest(
            command=f"sembridge reproduce {result.name}", seed=settings.seed, full=settings.full
        ),
        claims=tuple(
            line(c, result.measured.get(c.name), result.not_run)
            for c in claims
            if c.name not in timed
        ),
        checks=tuple(own_line(check, result.name) for check in result.checks),
        tables=result.tables,
        volatile=Varying(
            claims=tuple(line(c, timed[c.name]) for c in claims if c.name in timed),
            tables=result.volatile.tables,
            notes=result.volatile.notes,
            provenance=provenance(seconds, str(result.volatile.notes.get("link", "none"))),
        ),
    )


def provenance(seconds: float, link: str) -> Provenance:
    """Of this process, on this machine."""
    status = _git("status", "--porcelain", "--", ".", ":(exclude)results")
    return Provenance(
        commit=_git("rev-parse", "HEAD"),
        dirty=None if status is None else bool(status),
        sembridge=__version__,
        python=platform.python_version(),
        packages=dict(_versions()),
        system=platform.system(),
        machine=platform.machine(),
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        link=link,
        seconds=round(seconds, 3),
        load_average=os.getloadavg() if hasattr(os, "getloadavg") else None,
    )


def _versions() -> Iterator[tuple[str, str]]:
    for name in VERSIONED:
        with suppress(PackageNotFoundError):
            yield name, version(name)


def _git(*arguments: str) -> str | None:
    """What git says of the sources; None where they are in no repository."""
    try:
        ran = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def _cpu() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    names = [text.partition(":")[2].strip() for text in info.splitlines() if "model name" in text]
    return names[0] if names else platform.processor()


def fingerprint(settings: Settings) -> str:
    """Names what decides a result: code, seed and size. Interrupted runs go on within one."""
    digest = hashlib.sha256(f"{settings.seed} {settings.full}".encode())
    for package in SOURCES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".toml", ".json"):
                digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def write(folder: Path, doc: Document, result: Result) -> None:
    """Write ``NAME.json`` and the raw rows as JSON lines.

    Raises:
        BadInput: the folder cannot be written to.
    """
    (folder / "volatile").mkdir(parents=True, exist_ok=True)
    io.write(folder / f"{doc.name}.json", io.encode(doc))
    for path, rows in (
        (folder / f"{doc.name}.jsonl", result.records),
        (folder / "volatile" / f"{doc.name}.jsonl", result.volatile.records),
    ):
        if rows:
            io.write(path, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        else:
            path.unlink(missing_ok=True)


def read(folder: Path, name: str) -> Document:
    """A document that was written before.

    Raises:
        BadInput: there is none, or it is of another format.
    """
    path = folder / f"{name}.json"
    try:
        return io.decode(io.read_bytes(path), Document)
    except BadInput as error:
        raise error.within(str(path)) from None


def names(folder: Path) -> list[str]:
    """Names of the results in a folder, in order."""
    return sorted(path.stem for path in folder.glob("*.json"))


def differences(committed: Path, new: Path, chosen: Iterable[str]) -> Iterator[str]:
    """What differs between two folders of results, outside ``volatile``, one line each."""
    for name in chosen:
        if not (committed / f"{name}.json").exists():
            yield f"{name}: not in {committed}"
            continue
        before, after = (msgspec.to_builtins(read(f, name)) for f in (committed, new))
        del before["volatile"], after["volatile"]
        yield from _differ(name, before, after)
        rows = [_rows(f / f"{name}.jsonl") for f in (committed, new)]
        yield from _differ(f"{name}.jsonl", *rows)


def _rows(path: Path) -> list[Any]:
    if not path.exists():
        return []
    return [msgspec.json.decode(row) for row in path.read_bytes().splitlines()]


def _differ(at: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            yield from _differ(f"{at}.{key}", before.get(key), after.get(key))
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        if len(before) != len(after):
            yield f"{at}: {len(before)} entries, now {len(after)}"
        for i, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from _differ(f"{at}[{i}]", one, other)
    elif before != after:
        yield f"{at}: {before!r}, now {after!r}"
