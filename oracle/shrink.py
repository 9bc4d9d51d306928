"""Shrinking a contract and a plan that show something to the smallest pair that still shows it.

One greedy walk, repeated until nothing goes, in this order: runs of ops, runs of consumers
(halves, quarters, down to single ones), each producer with the consumers mapped to it, then the
fewest elements. The walk ends early once it has tried more than ``BUDGET`` ops and endpoints in
all: what is left of a huge pair may be smaller still, and shows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import msgspec

from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.layout import elements_of
from sembridge.obligations import resolve, validate
from sembridge.plan import AllGather, AnyOp, Broadcast, Plan, Project, Reduce, Send

Pair = tuple[Contract, Plan]

BUDGET = 100_000


def shrink(
    contract: Contract, plan: Plan, shows: Callable[[Contract, Plan], bool], *, columns: int = 1
) -> Pair:
    """The smallest pair found for which ``shows`` holds, as it does for the pair given.

    A contract that fails validation is no candidate. ``columns`` is the least length of the
    last axis: with one column a projection has nothing to choose.
    """
    spent, going = 0, True
    while going:
        going = False
        for smaller in smaller_pairs(contract, plan, least=columns):
            spent += _size(*smaller)
            if spent > BUDGET:
                return contract, plan
            if _valid(smaller[0]) and shows(*smaller):
                (contract, plan), going = smaller, True
                break
    return contract, plan


def _size(contract: Contract, plan: Plan) -> int:
    return len(contract.producers) + len(contract.consumers) + len(plan.ops)


def _runs(length: int) -> Iterator[tuple[int, int]]:
    """Runs to take out of a sequence: halves first, single items last."""
    size = max(1, length // 2)
    while size:
        for start in range(0, length, size):
            yield start, start + size
        size //= 2


def _valid(contract: Contract) -> bool:
    try:
        return not validate(resolve(contract))
    except BadInput:
        return False


def smaller_pairs(contract: Contract, plan: Plan, *, least: int) -> Iterator[Pair]:
    """Every pair that is one step smaller."""
    for start, stop in _runs(len(plan.ops)):
        ops = plan.ops[:start] + plan.ops[stop:]
        yield contract, msgspec.structs.replace(plan, ops=ops)
    for start, stop in _runs(len(contract.consumers)):
        rest = contract.consumers[:start] + contract.consumers[stop:]
        gone = {c.id for c in contract.consumers[start:stop]}
        yield msgspec.structs.replace(contract, consumers=rest), _without(plan, gone)
    for p in contract.producers:
        yield _without_producer(contract, p.id), _without(plan, {p.id})
    value = contract.value
    columns = value.shape[-1] if value.shape else 1
    shapes = {(n,) for n in range(least, 9)} | set(product((1, 2), range(least, 5)))
    for shape in sorted(shapes, key=lambda s: (elements_of(s), len(s))):
        if elements_of(shape) >= elements_of(value.shape):
            break
        padding = 0 if value.valid_last is None else columns - value.valid_last
        valid = None if value.valid_last is None else max(0, shape[-1] - padding)
        smaller = msgspec.structs.replace(value, shape=shape, valid_last=valid)
        yield msgspec.structs.replace(contract, value=smaller), plan


def _without_producer(contract: Contract, name: str) -> Contract:
    """The contract without a producer, consumers that map to it included, facts kept in step."""
    facts, replace = contract.facts, msgspec.structs.replace
    classes, owner, reduction = facts.replica_classes, facts.owner, facts.reduction
    if classes is not None:
        kept = [tuple([p for p in members if p != name]) for members in classes.value]
        classes = replace(classes, value=tuple([m for m in kept if m]))
    if owner is not None:
        owner = replace(owner, value=tuple([p for p in owner.value if p != name]))
    if reduction is not None:
        sources = tuple([p for p in reduction.value.sources if p != name])
        reduction = replace(reduction, value=replace(reduction.value, sources=sources))
    return replace(
        contract,
        producers=tuple([p for p in contract.producers if p.id != name]),
        consumers=tuple([c for c in contract.consumers if c.source != name]),
        facts=replace(facts, replica_classes=classes, owner=owner, reduction=reduction),
    )


def _without(plan: Plan, gone: set[str]) -> Plan:
    """The plan with every mention of some endpoints taken out, and ops that are left empty."""

    def rest(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([x for x in names if x not in gone])

    ops: list[AnyOp] = []
    for op in plan.ops:
        match op:
            case Send(src=src, dst=dst) if gone.isdisjoint((src, dst)):
                ops.append(op)
            case Project(at=at) if at not in gone:
                ops.append(op)
            case Broadcast(src=src, dsts=dsts) if src not in gone and (not dsts or rest(dsts)):
                ops.append(msgspec.structs.replace(op, dsts=rest(dsts)))
            case AllGather(members=members) if not members or rest(members):
                ops.append(msgspec.structs.replace(op, members=rest(members)))
            case Reduce(sources=sources, targets=targets) if rest(sources) and (
                not targets or rest(targets)
            ):
                ops.append(
                    msgspec.structs.replace(op, sources=rest(sources), targets=rest(targets))
                )
            case _:
                pass
    return msgspec.structs.replace(plan, ops=tuple(ops))
