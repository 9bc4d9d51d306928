"""The symbolic checker (§3.3, §4.1): runs a plan over holdings and reports every broken rule.

Time is linear in the ops' endpoints and slices, space O(|P| + |C| + m) (§4.4). What each op
requires and does is in :mod:`sembridge.rules`; here are only the loop and the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from sembridge.contract import Contract
from sembridge.footprint import Footprint, footprint_of
from sembridge.obligations import Obligations, resolve, validate
from sembridge.plan import AnyOp, Plan
from sembridge.rules import SEMANTICS, Rule, identify, observe
from sembridge.state import State
from sembridge.verdict import Verdict, Violation

LEGAL, ILLEGAL = Verdict.LEGAL, Verdict.ILLEGAL


class Report(Struct, frozen=True, kw_only=True):
    """What the checker says of a plan."""

    verdict: Verdict
    footprint: Footprint
    violations: tuple[Violation, ...]


class Checker:
    """Runs plans under every rule, or under some of them: the campaigns weaken it so."""

    def __init__(self, rules: Iterable[Rule] | None = None) -> None:
        self._rules = None if rules is None else frozenset(rule.id for rule in rules)

    def start(self, ob: Obligations) -> State:
        """The state before the first op."""
        return State(ob, self._rules)

    def step(self, state: State, op: AnyOp) -> None:
        """Run one op; what is wrong with it is added to ``state.found``."""
        SEMANTICS[type(op)](state, op)

    def observe(self, state: State) -> None:
        """Judge what the demanded consumers observe in ``state``.

        Consumers that hold one copy under one obligation observe the same: one of them is
        judged, and only where it is refused are they all, so that each is named.
        """
        ob, found = state.ob, state.found
        demanded = ob.demanded
        for surface in ob.observed:
            get = state.held[surface].get
            keys: Iterable[object] = map(id, map(get, demanded))
            if ob.owners is None and ob.reduced is None:
                sources = [ob.mapped[c] for c in demanded]
                keys = zip(keys, map(ob.class_of.get, sources, sources), strict=True)
            before = len(found)
            for c in dict(zip(keys, demanded, strict=True)).values():
                observe(state, c, surface, get(c))
            if len(found) > before:
                del found[before:]
                for c in demanded:
                    observe(state, c, surface, get(c))

    def violations(self, ob: Obligations, plan: Plan) -> list[Violation]:
        """Every violation of ``plan`` under valid obligations, in op order."""
        state = State(ob, self._rules)
        identify(state, plan)
        for state.op, op in enumerate(plan.ops):
            SEMANTICS[type(op)](state, op)
        state.op = None
        self.observe(state)
        return state.found

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
        verdict=ILLEGAL if violations else LEGAL,
        footprint=footprint_of(ob, plan.ops),
        violations=tuple(violations),
    )


CHECKER = Checker()
"""The checker with every rule in force."""


def check(contract: Contract, plan: Plan) -> Report:
    """Check one plan: verdict, footprint (equation 5), and every violation.

    Raises:
        BadInput: the contract refers to what is not there.
    """
    return CHECKER.check(contract, plan)
