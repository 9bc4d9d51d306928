"""The symbolic checker (§3.3, §4.1): runs a plan over holdings and reports every broken rule.

Time is linear in the ops' endpoints and slices, space O(|P| + |C| + m) (§4.4). The rules are in
:mod:`sembridge.rules`; here is only how an op changes the state, and the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from sembridge.contract import Contract
from sembridge.footprint import Footprint, footprint_of
from sembridge.obligations import Obligations, resolve, validate
from sembridge.plan import VALUE, AllGather, AnyOp, Broadcast, Plan, Project, Reduce, Send
from sembridge.rules import OBSERVATION, PLAN, RULES, Finding, Rule
from sembridge.state import Holding, State
from sembridge.verdict import Verdict, Violation

CANNOT_RUN = frozenset({"membership", "availability"})
"""After a violation of these an op has no effect: what it would deliver does not exist."""


class Report(Struct, frozen=True, kw_only=True):
    """What the checker says of a plan."""

    verdict: Verdict
    footprint: Footprint
    violations: tuple[Violation, ...]


def _one(s: State, op: Send | Broadcast) -> Holding | None:
    return s.held[op.surface][op.src]


def _at(s: State, op: Project) -> Holding | None:
    return s.held[VALUE][op.at]


def _sources(s: State, op: Reduce) -> list[Holding | None]:
    at = s.held[VALUE]
    return [at[x] for x in op.sources]


def _members(s: State, op: AllGather) -> list[Holding | None]:
    at = s.held[op.surface]
    return [at[x] for x in op.members]


def _send(s: State, op: Send, held: Holding) -> None:
    s.deliver(op.dst, op.surface, s.span(op.part), held)


def _broadcast(s: State, op: Broadcast, held: Holding) -> None:
    for dst in op.dsts:
        s.deliver(dst, op.surface, None, held)


def _project(s: State, op: Project, held: Holding) -> None:
    at = s.held[s.output_of(op.projection)]
    if at[op.at] is None:
        at[op.at] = held


def _reduce(s: State, op: Reduce, held: list[Holding]) -> None:
    sources = s.interned(frozenset[str]().union(*[h.sources for h in held]))
    at = s.held[VALUE]
    for target in op.targets:
        at[target] = Holding(True, sources, frozenset((target,)))


def _gather(s: State, op: AllGather, held: list[Holding]) -> None:
    sources = s.interned(frozenset[str]().union(*[h.sources for h in held]))
    issuers = frozenset[str]().union(*[h.issuers for h in held])
    whole = Holding(all([h.complete for h in held]), sources, issuers)  # noqa: C419
    s.held[op.surface].update(dict.fromkeys(op.members, whole))


SEMANTICS: dict[type, tuple[Callable[..., Any], Callable[..., None]]] = {
    Send: (_one, _send),
    Broadcast: (_one, _broadcast),
    Project: (_at, _project),
    Reduce: (_sources, _reduce),
    AllGather: (_members, _gather),
}
"""What each op reads of the state, and what it does to the state."""


class Checker:
    """The rules of a registry, sorted by what they look at; the campaigns build weakened ones."""

    def __init__(self, rules: Iterable[Rule] = RULES) -> None:
        rules = tuple(rules)
        on: dict[Any, list[tuple[Rule, Callable[..., Sequence[Finding]]]]] = {
            kind: [(r, r.finds) for r in rules if r.on is kind]
            for kind in (*SEMANTICS, OBSERVATION, PLAN)
        }
        self._on_plan, self._on_observation = on[PLAN], on[OBSERVATION]
        self._on_op = {kind: (*SEMANTICS[kind], on[kind]) for kind in SEMANTICS}

    def step(self, state: State, op: AnyOp, index: int | None = None) -> list[Violation]:
        """Run one op: what is wrong with it, after which ``state`` is the state behind it."""
        reads, does, rules = self._on_op[type(op)]
        held = reads(state, op)
        found: list[Violation] = []
        runs = True
        for rule, finds in rules:
            findings = finds(state, op, held)
            if findings:
                found += [
                    Violation(rule=rule.name, op=index, endpoint=x, message=message)
                    for x, message in findings
                ]
                if rule.name in CANNOT_RUN:
                    runs = False
                    if rule.name == "membership":
                        break
        # A weakened checker may run an op that has nothing to read; it does nothing then.
        if runs and held is not None and (type(held) is Holding or None not in held):
            does(state, op, held)
        return found

    def observe(self, state: State) -> list[Violation]:
        """What is wrong with the demanded consumers' observations in ``state``.

        Consumers that hold the same copies under the same obligation are judged once.
        """
        ob, rules = state.ob, self._on_observation
        copies = [(surface, state.held[surface]) for surface in ob.observed]
        by_mapping = ob.owners is None and ob.reduced is None
        found: list[Violation] = []
        accepted: set[tuple[int, ...]] = set()
        for c in ob.demanded:
            held = [at[c] for _, at in copies]
            key = tuple([id(h) for h in held])
            if by_mapping:
                source = ob.mapped[c]
                key += (id(ob.class_of.get(source, source)),)
            if key in accepted:
                continue
            before = len(found)
            for (surface, _), h in zip(copies, held, strict=True):
                for rule, finds in rules:
                    findings = finds(state, c, surface, h)
                    if findings:
                        found += [
                            Violation(rule=rule.name, endpoint=x, message=message)
                            for x, message in findings
                        ]
            if len(found) == before and None not in held:
                accepted.add(key)
        return found

    def violations(self, ob: Obligations, plan: Plan) -> list[Violation]:
        """Every violation of ``plan`` under valid obligations, in op order."""
        found = [
            Violation(rule=rule.name, endpoint=x, message=message)
            for rule, finds in self._on_plan
            for x, message in finds(ob, plan)
        ]
        state = State(ob)
        for index, op in enumerate(plan.ops):
            found += self.step(state, op, index)
        return found + self.observe(state)

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
