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
        self.got = dict.fromkeys([(p, VALUE) for p in ob.producers], self.everything)
        self.complete = dict.fromkeys(ob.producers, not ob.partial)

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
                output = self.ob.projected.output if self.ob.projected else op.projection
                again = (op.at, output) in self.got
                self.got[op.at, output] = self.everything
                return again
            case AllGather():
                complete = all(self.complete.get(x, True) for x in op.members)
                for x in op.members:
                    self.got[x, op.surface] = self.everything
                    self.complete[x] = complete
                return False
            case Reduce():
                again = len(set(op.targets)) < len(op.targets)
                for x in op.targets:
                    again |= (x, VALUE) in self.got and self.complete[x]
                    self.got[x, VALUE] = self.everything
                    self.complete[x] = True
                return again

    def _arrives(self, src: str, dst: str, surface: str, chosen: int) -> bool:
        there = self.got.get((dst, surface))
        if surface == VALUE:
            complete = self.complete[src]
            self.complete[dst] = complete and (there is None or self.complete[dst])
        self.got[dst, surface] = chosen if there is None else there | chosen
        return there is not None and (not chosen or bool(chosen & there))


def redelivers(ob: Obligations, ops: tuple[AnyOp, ...]) -> bool:
    """Whether an op delivers elements to an endpoint that has them; the ops must be runnable."""
    tally = _Tally(ob)
    repeated = [tally.repeats(op) for op in ops]
    return any(repeated)
