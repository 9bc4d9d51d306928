"""Legal, illegal or unknown, by proof: is there a choice of values that breaks a condition?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from oracle.smt import solver
from oracle.smt.model import Condition, Model, TooLarge, encode
from oracle.smt.solver import Answer
from sembridge import io
from sembridge.contract import Contract
from sembridge.obligations import Obligations, resolve, validate
from sembridge.plan import Plan
from sembridge.verdict import Verdict, Violation


class Proof(Struct, frozen=True, kw_only=True):
    """A verdict by proof.

    ``broken`` are an illegal plan's conditions that some choice of values breaks, ``violations``
    the same in the checker's terms (or why the contract is rejected). ``facts`` are those that a
    legal plan's proof needs, none of them to spare; None where the budget ended before they were
    found. ``reason`` says why a verdict is unknown.
    """

    verdict: Verdict
    violations: tuple[Violation, ...] = ()
    broken: tuple[Condition, ...] = ()
    facts: tuple[str, ...] | None = None
    reason: str = ""


def prove(
    contract: Contract,
    plan: Plan,
    *,
    rlimit: int = solver.RLIMIT,
    explain: bool = True,
    dump: Path | None = None,
) -> Proof:
    """Prove one plan legal, or break it.

    ``explain`` looks for every broken condition of an illegal plan, and for the facts that a
    legal one needs; without it the verdict alone is established. ``dump`` is a folder that
    receives the question as SMT-LIB.

    Raises:
        BadInput: the contract refers to what is not there, or ``dump`` cannot be written.
    """
    ob = resolve(contract)
    rejected = validate(ob)
    if rejected:
        return Proof(verdict=Verdict.ILLEGAL, violations=tuple(rejected))
    return prove_valid(ob, plan, rlimit=rlimit, explain=explain, dump=dump)


def prove_valid(
    ob: Obligations,
    plan: Plan,
    *,
    rlimit: int = solver.RLIMIT,
    explain: bool = True,
    dump: Path | None = None,
) -> Proof:
    """:func:`prove` under obligations that passed validation."""
    try:
        model = encode(ob, plan)
    except TooLarge as bound:
        return Proof(verdict=Verdict.UNKNOWN, reason=str(bound))
    if dump is not None:
        io.write(dump / "legality.smt2", solver.smtlib(model.script).encode())
    outcome = solver.decide(model.script, rlimit=rlimit)
    if outcome.answer is Answer.UNKNOWN:
        return Proof(verdict=Verdict.UNKNOWN, reason=outcome.reason)
    if outcome.answer is Answer.UNSAT:
        facts = solver.core(model.script, rlimit=rlimit) if explain else None
        return Proof(verdict=Verdict.LEGAL, facts=facts)
    broken = _broken(model, outcome.constants, rlimit if explain else 0)
    return Proof(
        verdict=Verdict.ILLEGAL,
        broken=tuple(broken),
        violations=tuple(
            [
                Violation(rule=c.rule, op=c.op, endpoint=c.endpoint, message=f"not so: {c.says}")
                for c in broken
            ]
        ),
    )


def _broken(model: Model, first: Mapping[str, int | bool], rlimit: int) -> list[Condition]:
    """Every condition that some choice breaks: ask again for one that is not yet known to break."""
    constants, broken = first, set[int]()
    pending = set(range(len(model.conditions)))
    while True:
        broken |= {i for i in pending if constants.get(f"ok_{i}") is False}
        pending -= broken
        if not rlimit or not pending:
            break
        claim = " ".join([f"(not ok_{i})" for i in sorted(pending)])
        outcome = solver.decide(model.script.with_claims(f"(or false {claim})"), rlimit=rlimit)
        if outcome.answer is not Answer.SAT:
            break
        constants = outcome.constants
    return [model.conditions[i] for i in sorted(broken)]
