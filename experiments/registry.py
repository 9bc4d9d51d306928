"""Experiments by name: each computes claims and tables; paper numbers are only ever quoted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

REPORTED = "reported by the paper"


class Standing(StrEnum):
    """How a claim of the paper stands here. Only ``DIFFERS`` fails a run."""

    HOLDS = "holds"
    DIFFERS = "differs"
    NOT_VALIDATED = "not validated"


class Claim(Struct, frozen=True, kw_only=True):
    """One quantitative claim: where the paper makes it, its number, ours, and the comparison.

    ``paper`` is quoted (``reported by the paper``) and None for a claim of this kit's own;
    ``ours`` is computed, and None where it cannot be.
    """

    name: str
    where: str
    paper: Any = None
    ours: Any = None
    standing: Standing
    note: str = ""


def exactly(
    name: str, where: str, *, paper: Any = None, ours: Any, expected: Any = None, note: str = ""
) -> Claim:
    """A claim that holds where ``ours`` equals the paper's number (or ``expected``)."""
    wanted = paper if expected is None else expected
    standing = Standing.HOLDS if ours == wanted else Standing.DIFFERS
    return Claim(name=name, where=where, paper=paper, ours=ours, standing=standing, note=note)


def not_validated(name: str, where: str, *, paper: Any, note: str, ours: Any = None) -> Claim:
    """A claim shown with its reason and never counted as a pass."""
    return Claim(
        name=name,
        where=where,
        paper=paper,
        ours=ours,
        standing=Standing.NOT_VALIDATED,
        note=note,
    )


class Table(Struct, frozen=True, kw_only=True):
    """Rows under named columns; what is the paper's stands in a column that says so."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""


class Result(Struct, frozen=True, kw_only=True):
    """What an experiment found, byte for byte the same on every run; ``volatile`` is the rest."""

    name: str
    how: str
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    volatile: Mapping[str, Any] = field(default_factory=dict)


class Settings(Struct, frozen=True, kw_only=True):
    """How to run: ``full`` asks for what takes minutes; progress receives (done, of, label)."""

    full: bool = False
    jobs: int = -1
    seed: int = 0
    progress: Callable[[int, int, str], None] | None = None


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
