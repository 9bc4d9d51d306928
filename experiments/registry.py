"""Experiments by name: each measures what the ledger's claims ask for, and tables around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from experiments.ledger import Check


class Table(Struct, frozen=True, kw_only=True):
    """Rows under named columns; what is the paper's stands in a column that says so."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""


class Volatile(Struct, frozen=True, kw_only=True):
    """The part of a result that differs from run to run: times, and what follows from them."""

    measured: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


class Result(Struct, frozen=True, kw_only=True):
    """What an experiment found, byte for byte the same on every run but for ``volatile``.

    ``measured`` gives ours for claims of the ledger, by name; ``checks`` are claims of this kit's
    own. A claim that is not measured shows as not run, with ``not_run`` as the reason.
    """

    name: str
    how: str
    measured: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    tables: tuple[Table, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    volatile: Volatile = Volatile()
    not_run: str = ""


class Settings(Struct, frozen=True, kw_only=True):
    """How to run: ``full`` asks for what takes minutes; progress receives (done, of, label).

    Long experiments keep a journal in the folder ``journals``, and go on from it.
    """

    full: bool = False
    jobs: int = -1
    seed: int = 0
    progress: Callable[[int, int, str], None] | None = None
    journals: Path | None = None

    def journal(self, name: str) -> Path | None:
        """Where a campaign of this run keeps its journal."""
        return None if self.journals is None else self.journals / f"{name}.jsonl"


class Experiment(Struct, frozen=True, kw_only=True):
    """A named experiment; ``quick`` ones run by default."""

    name: str
    title: str
    quick: bool
    run: Callable[[Settings], Result]


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    name: str, title: str, *, quick: bool = True
) -> Callable[[Callable[[Settings], Result]], Callable[[Settings], Result]]:
    """Register an experiment under ``name``."""

    def register(run: Callable[[Settings], Result]) -> Callable[[Settings], Result]:
        EXPERIMENTS[name] = Experiment(name=name, title=title, quick=quick, run=run)
        return run

    return register


def load() -> dict[str, Experiment]:
    """Import every experiment module of this package, and return the registry."""
    import importlib
    import pkgutil

    import experiments

    for module in sorted(m.name for m in pkgutil.iter_modules(experiments.__path__)):
        importlib.import_module(f"experiments.{module}")
    return EXPERIMENTS


def choose(names: Sequence[str]) -> list[Experiment]:
    """Experiments by name; ``quick`` and ``all`` name groups.

    Raises:
        KeyError: the first name that is none.
    """
    known = load()
    chosen: dict[str, Experiment] = {}
    for name in names or ("quick",):
        if name in ("quick", "all"):
            chosen |= {e.name: e for e in known.values() if e.quick or name == "all"}
        else:
            chosen[name] = known[name]
    return list(chosen.values())
