"""The listing: every program of the bounded family, op by op, with the checker as the judge.

A depth-first search over steps; prefixes are shared, so an op is checked once for all sequences
that begin alike. The conditions here are the family's (:mod:`oracle.program`); whether an op may
run, and whether a consumer may observe what it got, only the shared rules say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from oracle.program import check_steps, materialize, remote_lanes, surfaces_sent
from sembridge.check import CHECKER, Checker
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, AnyOp, Broadcast, Plan, Project, Reduce, Send
from sembridge.rules import observe
from sembridge.state import State


class Step(NamedTuple):
    """Ops that run together. ``needs`` and ``adds`` are bits that hold before and after it.

    ``lacks`` are bits that must not hold yet; ``observers`` are the demanded consumers whose
    observation the step decides, ``then`` the projections that they still need for it.
    """

    ops: tuple[AnyOp, ...]
    needs: int
    lacks: int
    adds: int
    observers: tuple[str, ...] = ()
    then: tuple[AnyOp, ...] = ()


class Sequence(NamedTuple):
    """One op sequence of the family; ``program`` is equal for sequences of the same ops."""

    steps: tuple[Step, ...]
    program: int
    accepted: bool

    @property
    def ops(self) -> tuple[AnyOp, ...]:
        """The ops in order."""
        return tuple([op for step in self.steps for op in step.ops])

    def plan(self, ob: Obligations) -> Plan:
        """The sequence as a plan for the contract."""
        return Plan(contract=ob.contract.name, tag=ob.contract.tag, ops=self.ops)


class Family:
    """The steps of one contract's family, and when a sequence of them is a program.

    A bit stands for one thing that only grows: an endpoint holds a surface, a consumer is
    served, a producer sent what it projected, the reduction ran.
    """

    def __init__(self, ob: Obligations) -> None:
        check_steps(ob)
        self.ob = ob
        self._bits: dict[tuple[str, str], int] = {}
        self.start = self._all(ob.producers, VALUE)
        self.goal = self._all(ob.demanded, "served")
        if ob.projected:
            self.goal |= self._all(ob.demanded, ob.projected.output)
        self.debts: list[tuple[int, int]] = []
        self.steps: list[Step] = [
            *self._reduction(),
            *self._projections(),
            *self._deliveries(),
            *self._assemblies(),
        ]

    def finished(self, bits: int) -> bool:
        """Whether every demanded consumer is served, and every projecting producer has sent."""
        if bits & self.goal != self.goal:
            return False
        return all(bits & sent or not bits & projected for projected, sent in self.debts)

    def _bit(self, endpoint: str, what: str) -> int:
        return self._bits.setdefault((endpoint, what), 1 << len(self._bits))

    def _all(self, endpoints: list[str], what: str) -> int:
        return sum([self._bit(x, what) for x in endpoints])

    def _reduction(self) -> Iterator[Step]:
        ob = self.ob
        if ob.reduced is not None and ob.operator is not None:
            producers, ran = tuple(ob.producers), self._bit("", "reduced")
            reduction = Reduce(operator=ob.operator, sources=producers, targets=producers)
            yield Step((reduction,), 0, ran, ran)

    def _projections(self) -> Iterator[Step]:
        projected = self.ob.projected
        if projected is None:
            return
        sources = self.ob.producers if projected.output in surfaces_sent(self.ob) else []
        for x in (*sources, *self.ob.demanded):
            adds = self._bit(x, projected.output)
            op = Project(projection=projected.name, at=x)
            if x in self.ob.producer_set:
                self.debts.append((adds, self._bit(x, "sent")))
            yield Step((op,), self._bit(x, VALUE), adds, adds)

    def _deliveries(self) -> Iterator[Step]:
        ob, domain_of = self.ob, self.ob.domain_of
        for surface in surfaces_sent(ob):
            for src in (*ob.producers, *ob.demanded):
                others = [c for c in ob.demanded if c != src]
                for c in others:
                    if domain_of[c] != domain_of[src]:
                        yield self._delivery(Send(src=src, dst=c, surface=surface), src, (c,))
                home = [c for c in others if domain_of[c] == domain_of[src]]
                for size in range(1, len(home) + 1):
                    for dsts in combinations(home, size):
                        op = Broadcast(src=src, dsts=dsts, surface=surface)
                        yield self._delivery(op, src, dsts)

    def _delivery(self, op: Send | Broadcast, src: str, dsts: tuple[str, ...]) -> Step:
        served = self._all(list(dsts), "served")
        adds = served | self._all(list(dsts), op.surface)
        if op.surface != VALUE:
            adds |= self._bit(src, "sent")
        then = self._then(dsts) if op.surface == VALUE else ()
        return Step((op,), self._bit(src, op.surface), served, adds, dsts, then)

    def _then(self, served: tuple[str, ...]) -> tuple[AnyOp, ...]:
        """The projections that consumers served the value owe."""
        projected = self.ob.projected
        return tuple([Project(projection=projected.name, at=c) for c in served if projected])

    def _assemblies(self) -> Iterator[Step]:
        for lanes in remote_lanes(self.ob).values():
            served = self._all(lanes, "served")
            adds = served | self._all(lanes, VALUE)
            ops, every = materialize(self.ob, lanes), tuple(lanes)
            yield Step(ops, 0, served, adds, every, self._then(every))


def sequences(
    ob: Obligations, *, checker: Checker = CHECKER, rejected: bool = False
) -> Iterator[Sequence]:
    """Every sequence of valid obligations' family that ``checker`` accepts.

    With ``rejected`` also those that it does not accept. What a served consumer holds never
    changes, so a violation once found stays, and its continuations can be left out.
    """
    return _walk(ob, checker, rejected, each_order=True)


def programs(
    ob: Obligations, *, checker: Checker = CHECKER, rejected: bool = False
) -> dict[int, Sequence]:
    """One sequence of every distinct program (ops up to order), an accepted one where there is."""
    found: dict[int, Sequence] = {}
    for sequence in _walk(ob, checker, rejected, each_order=False):
        if sequence.accepted or sequence.program not in found:
            found[sequence.program] = sequence
    return found


def _walk(
    ob: Obligations, checker: Checker, rejected: bool, *, each_order: bool
) -> Iterator[Sequence]:
    family = Family(ob)
    root = checker.start(ob)
    for p in ob.producers:
        root.own(root.values, p)  # once, so that all forks share one holding
    steps = [(1 << i, step.needs, step.lacks, step) for i, step in enumerate(family.steps)]
    pending = [(family.start, root, Sequence((), 0, True), steps)]
    seen: set[tuple[int, bool]] = set()
    while pending:
        bits, state, prefix, steps = pending.pop()
        left = [step for step in steps if not bits & step[2]]
        for mark, needs, _, step in left:
            if bits & needs != needs:
                continue
            program = prefix.program | mark
            if not each_order:
                # Accepted ops leave one state behind, whatever their order.
                if (program, prefix.accepted) in seen:
                    continue
                seen.add((program, prefix.accepted))
            after, now = state.fork(), bits | step.adds
            accepted = _runs(checker, after, step)
            if not (accepted or rejected):
                continue
            sequence = Sequence((*prefix.steps, step), program, prefix.accepted and accepted)
            if family.finished(now):
                yield sequence
            elif rejected or not family.debts or _can_pay(checker, family, now, after):
                pending.append((now, after, sequence, left))


def _can_pay(checker: Checker, family: Family, bits: int, state: State) -> bool:
    """Whether every producer that projected has sent its result, or still finds a receiver."""
    for projected, sent in family.debts:
        if bits & projected and not bits & sent:
            receivers = [s for s in family.steps if s.adds & sent and not bits & s.lacks]
            if not any(_runs(checker, state.fork(), step) for step in receivers):
                return False
    return True


def _runs(checker: Checker, state: State, step: Step) -> bool:
    """Run a step; whether the checker finds nothing wrong with it and with what it decides.

    What a consumer is served settles what it will observe, so its projection is looked at ahead,
    in a state of its own, and hopeless prefixes end at once.
    """
    for op in step.ops:
        checker.step(state, op)
    if state.found:
        return False
    ahead = state
    if step.then:
        ahead = state.fork()
        for op in step.then:
            checker.step(ahead, op)
    for surface in state.ob.observed:
        held = ahead.held[surface].get
        for c in step.observers:
            observe(ahead, c, surface, held(c))
    return not ahead.found
