"""Contracts and plans drawn at random, legal and broken, for judges to disagree about.

Everything is drawn from the caller's ``random.Random``, so a seed names a sample. The contracts
are small and odd on purpose: empty tensors, slices without elements, facts of every origin,
consumers inside the producers' domain. Some plans are lowered ones with up to three edits, some
are assembled op by op, and some walk where the checker lets them, as far as they get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec

from sembridge.check import CHECKER, check
from sembridge.contract import (
    Consumer,
    Contract,
    DemandFact,
    Domain,
    Fact,
    Facts,
    Producer,
    Reduction,
    Value,
)
from sembridge.layout import Operator, Partial, Placement, Replicate, Shard
from sembridge.lowering import POLICIES, lower_valid
from sembridge.obligations import Obligations, resolve, validate
from sembridge.plan import (
    VALUE,
    AllGather,
    AnyOp,
    Broadcast,
    Part,
    Plan,
    Project,
    Reduce,
    Send,
    Tag,
)
from sembridge.surfaces import Complete, Logprobs, Surface, Tokens
from sembridge.verdict import Verdict

Pair = tuple[Contract, Plan]

OPERATORS: tuple[Operator, ...] = ("sum", "product", "minimum", "maximum")
SHAPES = ((4,), (6,), (5,), (2, 3), (3, 2), (1, 5), (2, 4), (1,), (0, 3), (2, 1), (3, 1, 2))


def draw_pair(random: Random) -> Pair:
    """One contract and one plan for it."""
    contract = draw_contract(random)
    if random.random() < 0.25 and not validate(resolve(contract)):
        return _walk(random, contract)
    return contract, draw_plan(random, contract)


def draw_pairs(seed: int, count: int) -> Iterator[Pair]:
    """``count`` pairs; equal seeds draw equal pairs."""
    random = Random(seed)
    for _ in range(count):
        yield draw_pair(random)


def draw_contract(random: Random) -> Contract:
    """A contract that refers to what is there; it may fail validation."""
    names = ["A", "B", "C", "D"]
    home = "A"
    away = 0.15 if random.random() < 0.3 else 0.0
    producers = tuple(
        [
            Producer(id=f"p{i}", domain=random.choice(names) if random.random() < away else home)
            for i in range(random.choice((1, 2, 2, 3, 4)))
        ]
    )
    ids = [p.id for p in producers]
    reach = random.randint(1, 3)
    consumers = tuple(
        [
            Consumer(
                id=f"c{i}",
                domain=home if random.random() < 0.12 else random.choice(names[1 : reach + 1]),
                source=ids[i % len(ids)] if random.random() < 0.8 else random.choice(ids),
                demanded=random.random() < 0.7,
            )
            for i in range(random.randint(1, 4))
        ]
    )
    placement: Placement = random.choice(
        (Replicate(), Replicate(), Shard(dim=0), Partial(op=random.choice(OPERATORS)))
    )
    surface = _surface(random)
    shape = random.choice(SHAPES)
    dtype = "float32" if surface.projected or random.random() < 0.8 else "int32"
    return Contract(
        name="random",
        value=Value(
            kind="logits",
            shape=shape,
            dtype=dtype,
            valid_last=shape[-1] - 1 if shape[-1] > 1 and random.random() < 0.15 else None,
        ),
        domains={n: Domain(stack="cuda" if n == home else "cann") for n in names},
        producers=producers,
        consumers=consumers,
        placement=placement,
        facts=_facts(random, ids, placement, surface),
        tag=Tag(request="r", token=0, microbatch=0, epoch=1) if random.random() < 0.5 else None,
    )


def _surface(random: Random) -> Surface:
    roll = random.random()
    if roll < 0.5:
        return Complete()
    return Tokens() if roll < 0.8 else Logprobs()


def _facts(random: Random, ids: list[str], placement: Placement, surface: Surface) -> Facts:
    def origin() -> Any:
        return "validation" if random.random() < 0.1 else random.choice(("graph", "runtime"))

    classes = owner = reduction = None
    if random.random() < 0.45:
        shuffled = random.sample(ids, len(ids))
        cut = random.randint(1, len(ids)) if random.random() < 0.5 else len(ids)
        groups = [tuple(g) for g in (shuffled[:cut], shuffled[cut:]) if g]
        classes = Fact(value=tuple(groups[: random.randint(1, 2)]), origin=origin())
    if random.random() < 0.25:
        wanted = random.sample(ids, min(len(ids), random.choice((1, 1, 1, 2))))
        owner = Fact(value=tuple(wanted), origin=origin())
    if isinstance(placement, Partial) and random.random() < 0.95:
        reduction = Fact(
            value=Reduction(op=placement.op, sources=tuple(ids)),
            origin=origin() if random.random() < 0.3 else "graph",
        )
    return Facts(
        replica_classes=classes,
        owner=owner,
        reduction=reduction,
        demand=DemandFact(origin=origin()) if random.random() < 0.7 else None,
        surface=Fact(value=surface, origin=origin() if random.random() < 0.3 else "runtime"),
    )


def draw_plan(random: Random, contract: Contract) -> Plan:
    """A plan for ``contract``: lowered and then edited, or assembled op by op."""
    ops: list[AnyOp] = []
    ob = resolve(contract)
    if not validate(ob) and random.random() < 0.6:
        ops += lower_valid(ob, random.choice(list(POLICIES.values())))[0].ops
    else:
        if ob.partial and random.random() < 0.7:
            everyone = tuple([p.id for p in contract.producers])
            operator = ob.operator or random.choice(OPERATORS)
            ops.append(Reduce(operator=operator, sources=everyone, targets=everyone))
        while random.random() < 0.85 and len(ops) < 10:
            ops += (
                _assembly(random, contract) if random.random() < 0.35 else [_op(random, contract)]
            )
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        ops = random.choice(EDITS)(random, contract, ops)
    tag = contract.tag
    if random.random() < 0.03:
        tag = Tag(request="r", token=0, microbatch=0, epoch=0)
    name = "other" if random.random() < 0.02 else contract.name
    return Plan(contract=name, tag=tag, ops=tuple(ops))


def _walk(random: Random, contract: Contract) -> Pair:
    """Ops that the checker finds nothing wrong with, into odd states.

    Then those consumers are demanded that it is satisfied with, if any: the pair is legal to it.
    """
    ob, ops = resolve(contract), list[AnyOp]()
    for _ in range(random.randint(20, 100)):
        op = _op(random, contract)
        if _runs(ob, [*ops, op]):
            ops.append(op)
    plan = Plan(contract=contract.name, tag=contract.tag, ops=tuple(ops))
    served = [_demanding(contract, {c.id}) for c in contract.consumers]
    content = {
        c.id
        for c, alone in zip(contract.consumers, served, strict=True)
        if check(alone, plan).verdict is Verdict.LEGAL
    }
    return (_demanding(contract, content) if content else contract), plan


def _runs(ob: Obligations, ops: list[AnyOp]) -> bool:
    state = CHECKER.start(ob)
    for op in ops:
        CHECKER.step(state, op)
    return not state.found


def _demanding(contract: Contract, ids: set[str]) -> Contract:
    replace = msgspec.structs.replace
    return replace(
        contract,
        consumers=tuple([replace(c, demanded=c.id in ids) for c in contract.consumers]),
        facts=replace(contract.facts, demand=DemandFact(origin="runtime")),
    )


def _endpoint(random: Random, contract: Contract) -> str:
    if random.random() < 0.01:
        return "stranger"
    return random.choice((*contract.producers, *contract.consumers)).id


def _some(random: Random, contract: Contract, least: int = 1) -> tuple[str, ...]:
    pool = [c.id for c in contract.consumers]
    if random.random() < 0.3:
        pool += [p.id for p in contract.producers]
    if random.random() < 0.6:
        domain_of = {x.id: x.domain for x in (*contract.producers, *contract.consumers)}
        home = domain_of[random.choice(pool)]
        pool = [x for x in pool if domain_of[x] == home]
    least = 0 if random.random() < 0.01 else least
    found = random.sample(pool, random.randint(min(least, len(pool)), len(pool)))
    return (*found, found[0]) if found and random.random() < 0.02 else tuple(found)


def _carried(random: Random) -> str:
    return "tokens" if random.random() < 0.35 else VALUE


def _part(random: Random) -> Part | None:
    if random.random() < 0.6:
        return None
    of = random.choice((1, 2, 2, 3, 4, 7))
    return Part(index=random.randrange(of), of=of)


def _op(random: Random, contract: Contract) -> AnyOp:
    """Any op at all, more often one that has a chance to run."""
    roll = random.random()
    if roll < 0.45:
        surface, part = _carried(random), _part(random)
        keep = surface == VALUE or random.random() < 0.05
        return Send(
            src=_endpoint(random, contract),
            dst=random.choice(contract.consumers).id
            if random.random() < 0.9
            else _endpoint(random, contract),
            surface=surface,
            part=part if keep else None,
        )
    if roll < 0.65:
        return Broadcast(
            src=_endpoint(random, contract),
            dsts=_some(random, contract),
            surface=_carried(random),
        )
    if roll < 0.8:
        name = "argmax" if random.random() < 0.95 else "softmax"
        return Project(projection=name, at=_endpoint(random, contract))
    if roll < 0.93:
        return AllGather(members=_some(random, contract), surface=_carried(random))
    return Reduce(
        operator=random.choice(OPERATORS) if random.random() < 0.9 else "mean",
        sources=_some(random, contract) if random.random() < 0.5 else _all_producers(contract),
        targets=_some(random, contract) if random.random() < 0.5 else _all_producers(contract),
    )


def _all_producers(contract: Contract) -> tuple[str, ...]:
    return tuple([p.id for p in contract.producers])


def _assembly(random: Random, contract: Contract) -> list[AnyOp]:
    """Slices to some consumers of one domain and the all_gather among them, or all to one."""
    members = _some(random, contract)
    of = max(1, len(members) if random.random() < 0.7 else random.randint(1, 5))
    to_one = random.random() < 0.3
    mapped = {c.id: c.source for c in contract.consumers}
    ops: list[AnyOp] = []
    for j in range(of):
        if not members:
            break
        dst = members[0] if to_one else members[j % len(members)]
        src = mapped.get(dst) if random.random() < 0.6 else None
        src = src or random.choice(contract.producers).id
        ops.append(Send(src=src, dst=dst, part=Part(index=j, of=of)))
    return ops if to_one else [*ops, AllGather(members=members)]


Edit = Callable[[Random, Contract, list[AnyOp]], list[AnyOp]]


def _drop(random: Random, _: Contract, ops: list[AnyOp]) -> list[AnyOp]:
    at = random.randrange(len(ops) + 1)
    return ops[:at] + ops[at + 1 :]


def _repeat(random: Random, _: Contract, ops: list[AnyOp]) -> list[AnyOp]:
    return [*ops, random.choice(ops)] if ops else ops


def _swap(random: Random, _: Contract, ops: list[AnyOp]) -> list[AnyOp]:
    if len(ops) < 2:
        return ops
    a, b = sorted(random.sample(range(len(ops)), 2))
    return [*ops[:a], ops[b], *ops[a + 1 : b], ops[a], *ops[b + 1 :]]


def _insert(random: Random, contract: Contract, ops: list[AnyOp]) -> list[AnyOp]:
    at = random.randrange(len(ops) + 1)
    return [*ops[:at], _op(random, contract), *ops[at:]]


def _alter(random: Random, contract: Contract, ops: list[AnyOp]) -> list[AnyOp]:
    if not ops:
        return ops
    at = random.randrange(len(ops))
    op: Any = ops[at]
    change: dict[str, Any] = {}
    match op:
        case Send():
            change = random.choice(
                (
                    {"src": _endpoint(random, contract)},
                    {"dst": _endpoint(random, contract)},
                    {"surface": _carried(random)},
                    {"part": _part(random)},
                )
            )
        case Broadcast():
            change = random.choice(
                ({"src": _endpoint(random, contract)}, {"dsts": _some(random, contract)})
            )
        case AllGather():
            change = {"members": _some(random, contract)}
        case Project():
            change = {"at": _endpoint(random, contract)}
        case Reduce():
            change = random.choice(
                (
                    {"operator": random.choice((*OPERATORS, "mean"))},
                    {"sources": _some(random, contract)},
                    {"targets": _some(random, contract)},
                )
            )
        case _:
            pass
    return [*ops[:at], msgspec.structs.replace(op, **change), *ops[at + 1 :]]


EDITS: tuple[Edit, ...] = (_drop, _repeat, _swap, _insert, _alter, _alter)
"""Edits that may break a plan. To add one, add an entry."""
