"""Small contracts and plans that the tests of this folder share."""

from __future__ import annotations

import msgspec

from experiments.matrix import case
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
from sembridge.layout import Partial, Placement, Replicate
from sembridge.plan import AllGather, AnyOp, Broadcast, Part, Plan, Reduce, Send
from sembridge.surfaces import Surface, Tokens

MATRIX = {
    obligation: case(obligation, 2, 1, 0).contract
    for obligation in ("replica", "exact_shard", "partial", "authority")
}


def lanes(
    k: int = 2,
    *,
    placement: Placement | None = None,
    facts: Facts | None = None,
    shape: tuple[int, ...] = (6,),
) -> Contract:
    """``k`` producers in one domain, each mapped to its own consumer in another."""
    return Contract(
        name="lanes",
        value=Value(kind="hidden", shape=shape, dtype="float32"),
        domains={"A": Domain(stack="cuda"), "B": Domain(stack="cann")},
        producers=tuple([Producer(id=f"p{i}", domain="A") for i in range(k)]),
        consumers=tuple(
            [Consumer(id=f"c{i}", domain="B", source=f"p{i}", demanded=True) for i in range(k)]
        ),
        placement=placement or Replicate(),
        facts=facts or Facts(),
    )


def plan(contract: Contract, *ops: AnyOp) -> Plan:
    """Ops as a plan for ``contract``."""
    return Plan(contract=contract.name, tag=contract.tag, ops=ops)


def tokens() -> Fact[Surface]:
    """A token surface that the runtime asked for."""
    return Fact[Surface](value=Tokens(), origin="runtime")


def sum_of(k: int) -> Facts:
    """An outstanding sum over ``k`` producers."""
    sources = tuple([f"p{i}" for i in range(k)])
    return Facts(reduction=Fact(value=Reduction(op="sum", sources=sources), origin="graph"))


def reducible_again() -> tuple[Contract, Plan]:
    """An empty, unfinished slice beside a finished sum, gathered: may the sum be reduced again?

    The checker once said so, for it called the gathered copy unfinished.
    """
    contract = lanes(placement=Partial(op="sum"), facts=sum_of(2), shape=(1,))
    extra = tuple([Consumer(id=f"a{i}", domain="A", source="p0", demanded=False) for i in range(2)])
    c0, c1 = contract.consumers
    contract = msgspec.structs.replace(
        contract,
        consumers=(c0, msgspec.structs.replace(c1, demanded=False), *extra),
        facts=msgspec.structs.replace(contract.facts, demand=DemandFact(origin="runtime")),
    )
    nothing = Part(index=1, of=2)
    again = Reduce(operator="sum", sources=("p0", "p1"), targets=("p0", "p1"))
    return contract, plan(
        contract,
        Send(src="p0", dst="c1", part=nothing),
        Send(src="c1", dst="a0", part=nothing),
        Broadcast(src="a0", dsts=("a1",)),
        again,
        AllGather(members=("p0", "a0")),
        AllGather(members=("p1", "a1")),
        again,
        Send(src="p1", dst="c0"),
    )
