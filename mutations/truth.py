"""What is wrong with a mutant, as judges other than the checker say.

Four judges, none of which reads the checker or its rules: *identity* compares names and tags
(interchange format), *delivery* tallies which elements arrived where (semantics §3: an op that
delivers what is there already is a redelivery), *execution* is the executable reference (equation
4), and *proof* the SMT model, where it is installed. Execution judges observations alone; proof
judges every condition of every op.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.layout import slice_bounds
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, AllGather, AnyOp, Broadcast, Plan, Project, Reduce, Send
from sembridge.reference import Outcome, execute_valid
from sembridge.surfaces import PARAMETERS

NOT_RUN = "not run"
NO_REFERENCE = "no reference"
"""The contract is rejected, as the operator says it must be: no plan can be right under it."""


class Truth(Struct, frozen=True, kw_only=True):
    """What each judge says.

    ``execution`` is the reference's outcome, ``proof`` the SMT model's verdict (``not run``
    where a judge was left out or the plan is too large for it); ``wrong`` names what makes the
    mutant wrong whatever the checker says of it, empty where every demanded consumer observes
    what it should.
    """

    execution: str
    proof: str
    wrong: tuple[str, ...]


def prover_installed() -> bool:
    """Whether the SMT model can be asked."""
    return importlib.util.find_spec("oracle.smt") is not None


def judge(ob: Obligations, plan: Plan, *, rejected: bool, prove: bool) -> Truth:
    """Ask every judge about ``plan`` under ``ob``.

    ``rejected`` says that the contract fails static validation; the plan is run all the same,
    on what the contract's facts still authorize.
    """
    wrong: list[str] = []
    if plan.contract != ob.contract.name or plan.tag != ob.contract.tag:
        wrong.append("identity")
    execution = _execution(ob, plan, rejected)
    if execution in (Outcome.DIFFERS, Outcome.FAULT):
        wrong.append(execution)
    elif execution == Outcome.EQUAL and redelivers(ob, plan.ops):
        wrong.append("redelivery")
    proof = NOT_RUN
    if prove and not rejected:
        smt: Any = importlib.import_module("oracle.smt.prove")
        proof = str(smt.prove_valid(ob, plan, explain=False).verdict)
    return Truth(execution=execution, proof=proof, wrong=tuple(wrong))


def _execution(ob: Obligations, plan: Plan, rejected: bool) -> str:
    try:
        return str(execute_valid(ob, plan).outcome)
    except BadInput:
        return NOT_RUN
    except (ValueError, ZeroDivisionError, IndexError, KeyError):
        # A rejected contract may ask for what no kernel does, an argmax of integers, say.
        if rejected:
            return NOT_RUN
        raise


class _Tally:
    """Which elements of which surface arrived where (a bit for each), and which are complete."""

    def __init__(self, ob: Obligations) -> None:
        self.ob = ob
        self.everything = (1 << ob.elements) - 1
        values = [(p, VALUE) for p in ob.producers]
        known = [(x, PARAMETERS) for x in ob.informed] if PARAMETERS in ob.sizes else []
        self.got = dict.fromkeys(values + known, self.everything)
        self.complete = dict.fromkeys(values, not ob.partial) | dict.fromkeys(known, True)

    def repeats(self, op: AnyOp) -> bool:
        """Carry ``op`` out; whether it delivers what is there already."""
        match op:
            case Send():
                chosen = self.got[op.src, op.surface]
                if op.part is not None and op.part.of > 1:
                    start, stop = slice_bounds(self.ob.elements, op.part.index, op.part.of)
                    chosen = (1 << stop) - (1 << start)
                return self._arrives(op.src, op.dst, op.surface, chosen)
            case Broadcast():
                chosen = self.got[op.src, op.surface]
                arrivals = [self._arrives(op.src, d, op.surface, chosen) for d in op.dsts]
                return any(arrivals)
            case Project():
                projected, here = self.ob.projected, (op.at, VALUE)
                output = projected.output if projected else op.projection
                again = (op.at, output) in self.got
                self.got[op.at, output] = self.everything
                of_shards = projected is not None and projected.combine is not None
                self.complete[op.at, output] = self.complete[here] and not of_shards
                return again
            case AllGather():
                copies = [(x, op.surface) for x in op.members]
                complete = all(self.complete[copy] for copy in copies)
                self.got |= dict.fromkeys(copies, self.everything)
                self.complete |= dict.fromkeys(copies, complete)
                return False
            case Reduce():
                copies = [(x, op.surface) for x in op.targets]
                again = len(set(copies)) < len(copies)
                again |= any(copy in self.got and self.complete[copy] for copy in copies)
                self.got |= dict.fromkeys(copies, self.everything)
                self.complete |= dict.fromkeys(copies, True)
                return again

    def _arrives(self, src: str, dst: str, surface: str, chosen: int) -> bool:
        copy = dst, surface
        there = self.got.get(copy)
        complete = self.complete[src, surface]
        self.complete[copy] = complete and (there is None or self.complete[copy])
        self.got[copy] = chosen if there is None else there | chosen
        return there is not None and (not chosen or bool(chosen & there))


def redelivers(ob: Obligations, ops: tuple[AnyOp, ...]) -> bool:
    """Whether an op delivers elements to an endpoint that has them; the ops must be runnable."""
    tally = _Tally(ob)
    repeated = [tally.repeats(op) for op in ops]
    return any(repeated)
