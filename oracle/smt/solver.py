"""A thin wrapper around z3: SMT-LIB text in, an answer out, a fresh solver for each question.

Every question is a text first. What z3 decides is what :func:`smtlib` prints, so a dumped file is
the very question that was asked, and another solver can be given it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
import z3
from msgspec import Struct

TESTED = ("4.13", "5.5")
"""The range of z3 versions (first included, last excluded) that this package was tested with."""

RLIMIT = 20_000_000
"""Default budget of one question in z3's own resource units: a few seconds at most."""

MEMORY_MB = 2048
"""Bound on z3's memory; past it a question is answered ``unknown``."""


class Answer(StrEnum):
    """What a solver says of a formula. ``UNKNOWN`` is never read as either of the others."""

    SAT = "sat"
    UNSAT = "unsat"
    UNKNOWN = "unknown"


class Script(Struct, frozen=True, kw_only=True):
    """A question: ``body`` holds declarations and the claim, ``facts`` what may be assumed.

    A fact is a name and the formulas that it stands for.
    """

    logic: str
    body: tuple[str, ...]
    facts: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])

    def with_claims(self, *formulas: str) -> Script:
        """The same question with further assertions."""
        more = tuple(f"(assert {f})" for f in formulas)
        return msgspec.structs.replace(self, body=self.body + more)


class Outcome(Struct, frozen=True, kw_only=True):
    """An answer, the model's constants where there is one, and why where there is none."""

    answer: Answer
    constants: Mapping[str, int | bool] = msgspec.field(default_factory=dict[str, int | bool])
    reason: str = ""


def version() -> str:
    """The running z3's name and version, as recorded with results."""
    return f"z3 {z3.get_version_string()}"


def smtlib(script: Script, facts: Iterable[str] | None = None) -> str:
    """The question as an SMT-LIB 2 file that assumes ``facts`` (None: all of them)."""
    assumed = script.facts if facts is None else facts
    lines = [f"(set-logic {script.logic})", *script.body]
    for name in assumed:
        lines.append(f"; fact: {name}")
        lines += [f"(assert {formula})" for formula in script.facts[name]]
    return "\n".join([*lines, "(check-sat)", ""])


def decide(
    script: Script,
    facts: Iterable[str] | None = None,
    *,
    rlimit: int = RLIMIT,
    repeatable: bool = False,
) -> Outcome:
    """Decide a question in a fresh solver, facts asserted as they are.

    An answer is the same whatever was asked before; which model is found may not be, unless
    ``repeatable``, which takes a millisecond more.
    """
    question = smtlib(script, facts)
    solver = _solver(question, rlimit, own=repeatable)
    return _outcome(solver, _check(solver))


def core(script: Script, *, rlimit: int = RLIMIT) -> tuple[str, ...] | None:
    """A subset-minimal set of facts under which an unsatisfiable question stays so.

    z3's core is minimized by deletion, and what is left is decided again in a fresh solver. None
    where the budget ends before that.
    """
    names = list(script.facts)
    guards = [f"fact.{i}" for i in range(len(names))]
    lines = [f"(set-logic {script.logic})", *script.body]
    for guard, name in zip(guards, names, strict=True):
        lines.append(f"(declare-const {guard} Bool)")
        lines += [f"(assert (=> {guard} {formula}))" for formula in script.facts[name]]
    solver = _solver("\n".join(lines), rlimit)
    solver.set("core.minimize", True)
    literals = {guard: z3.Bool(guard, solver.ctx) for guard in guards}
    if _check(solver, *literals.values()) != z3.unsat:
        return None
    found = {str(literal) for literal in solver.unsat_core()}
    kept = [guard for guard in guards if guard in found]
    for guard in tuple(kept):
        rest = [literals[g] for g in kept if g != guard]
        if _check(solver, *rest) == z3.unsat:
            kept.remove(guard)
    used = tuple(name for guard, name in zip(guards, names, strict=True) if guard in kept)
    again = decide(script, used, rlimit=rlimit)
    return used if again.answer is Answer.UNSAT else None


DEFINITIONS = ("(define-fun", "(declare-datatypes")


def _solver(question: str, rlimit: int, own: bool = False) -> Any:
    """A fresh solver that has read a question.

    z3 keeps definitions in the context that they were read in, for whoever comes next: a
    question with definitions gets a context of its own, which takes a millisecond.
    """
    z3.set_param("memory_max_size", MEMORY_MB)
    own = own or any(word in question for word in DEFINITIONS)
    solver: Any = z3.SimpleSolver(ctx=z3.Context() if own else None)
    solver.set("rlimit", rlimit)
    solver.from_string(question)
    return solver


def _check(solver: Any, *assumptions: Any) -> Any:
    """The solver's answer; one that it fails to give (out of memory, say) is unknown."""
    try:
        return solver.check(*assumptions)
    except z3.Z3Exception:
        return z3.unknown


def _outcome(solver: Any, result: Any) -> Outcome:
    if result == z3.unsat:
        return Outcome(answer=Answer.UNSAT)
    if result != z3.sat:
        return Outcome(answer=Answer.UNKNOWN, reason=str(solver.reason_unknown()))
    model = solver.model()
    return Outcome(
        answer=Answer.SAT,
        constants={str(d.name()): _constant(model[d]) for d in model.decls() if d.arity() == 0},
    )


def _constant(value: Any) -> int | bool:
    return value.as_long() if z3.is_int_value(value) else z3.is_true(value)
