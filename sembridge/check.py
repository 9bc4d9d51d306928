"""The symbolic checker (§3.3, §4.1): runs a plan over holdings and reports every broken rule.

Time is linear in the ops' endpoints and slices, space O(|P| + |C| + m) (§4.4). The rules are in
:mod:`sembridge.rules`; here is only how an op changes the state, and the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from sembridge.contract import Contract
from sembridge.footprint import Footprint, footprint_of
from sembridge.obligations import Obligations, resolve, validate
from sembridge.plan import VALUE, AllGather, AnyOp, Broadcast, Plan, Project, Reduce, Send
from sembridge.rules import OBSERVATION, PLAN, RULES, Rule
from sembridge.state import Holding, State
from sembridge.verdict import Verdict, Violation

CANNOT_RUN = frozenset({"membership", "availability"})
"""After a violation of these an op has no effect: what it would deliver does not exist."""


class Report(Struct, frozen=True, kw_only=True):
    """What the checker says of a plan."""

    verdict: Verdict
    footprint: Footprint
    violations: tuple[Violation, ...]


def _run(s: State, op: AnyOp) -> None:
    match op:
        case Send():
            held = s.holding(op.src, op.surface)
            assert held is not None
            s.deliver(op.dst, op.surface, s.span(op.part), held)
        case Broadcast():
            held = s.holding(op.src, op.surface)
            assert held is not None
            for dst in op.dsts:
                s.deliver(dst, op.surface, None, held)
        case Project():
            held = s.holding(op.at, VALUE)
            assert held is not None
            s.at(s.output_of(op.projection)).setdefault(op.at, held)
        case Reduce():
            held = [h for x in op.sources if (h := s.holding(x, VALUE)) is not None]
            sources = s.interned(frozenset().union(*[h.sources for h in held]))
            at = s.at(VALUE)
            for target in op.targets:
                at[target] = Holding(True, sources, frozenset((target,)))
        case AllGather():
            at = s.at(op.surface)
            held = [at[x] for x in op.members]
            whole = Holding(
                all([h.complete for h in held]),
                s.interned(frozenset().union(*[h.sources for h in held])),
                frozenset().union(*[h.issuers for h in held]),
            )
            at.update(dict.fromkeys(op.members, whole))


class Checker:
    """The rules of a registry, sorted by what they look at; the campaigns build weakened ones."""

    def __init__(self, rules: Iterable[Rule] = RULES) -> None:
        rules = tuple(rules)
        self._on: dict[Any, list[Rule]] = {
            kind: [r for r in rules if r.on is kind]
            for kind in (Reduce, Project, Send, Broadcast, AllGather, OBSERVATION, PLAN)
        }

    def violations(self, ob: Obligations, plan: Plan) -> list[Violation]:
        """Every violation of ``plan`` under valid obligations, in op order."""
        found = [
            Violation(rule=rule.name, endpoint=x, message=message)
            for rule in self._on[PLAN]
            for x, message in rule.finds(ob, plan)
        ]
        state = State(ob)
        for index, op in enumerate(plan.ops):
            runs = True
            for rule in self._on[type(op)]:
                findings = rule.finds(state, op)
                if findings:
                    found += [
                        Violation(rule=rule.name, op=index, endpoint=x, message=message)
                        for x, message in findings
                    ]
                    if rule.name in CANNOT_RUN:
                        runs = False
                        if rule.name == "membership":
                            break
            if runs:
                _run(state, op)
        rules = self._on[OBSERVATION]
        found += [
            Violation(rule=rule.name, endpoint=x, message=message)
            for c in ob.demanded
            for rule in rules
            for x, message in rule.finds(state, c)
        ]
        return found

    def check_valid(self, ob: Obligations, plan: Plan) -> Report:
        """The report on ``plan`` under obligations that passed validation."""
        return _report(ob, plan, self.violations(ob, plan))

    def check(self, contract: Contract, plan: Plan) -> Report:
        """The report on ``plan`` under ``contract``; a rejected contract makes it illegal.

        Raises:
            BadInput: the contract refers to what is not there.
        """
        ob = resolve(contract)
        rejected = validate(ob)
        return _report(ob, plan, rejected) if rejected else self.check_valid(ob, plan)


def _report(ob: Obligations, plan: Plan, violations: Sequence[Violation]) -> Report:
    return Report(
        verdict=Verdict.ILLEGAL if violations else Verdict.LEGAL,
        footprint=footprint_of(ob, plan.ops),
        violations=tuple(violations),
    )


CHECKER = Checker()
"""The checker with every registered rule."""


def check(contract: Contract, plan: Plan) -> Report:
    """Check one plan: verdict, footprint (equation 5), and every violation.

    Raises:
        BadInput: the contract refers to what is not there.
    """
    return CHECKER.check(contract, plan)
