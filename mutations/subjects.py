"""What is mutated: contracts with accepted plans, by name.

Each contract comes with its semantic and its reference plan, since only the latter has slices
under lineage. The family here adds to the matrix and the real edges what neither has: projected
surfaces over every obligation, two classes, several owners, a reduction with an owner, a tensor
without elements, projections of shards and with parameters, consumers in the producers' domain, a
lane to spare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

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
from sembridge.layout import Partial, Placement, Replicate, Shard
from sembridge.lowering import REFERENCE, SEMANTIC, lower_valid
from sembridge.obligations import resolve_valid
from sembridge.plan import Plan, Tag
from sembridge.surfaces import (
    Choice,
    ChosenTokens,
    Complete,
    Logprobs,
    ShardedTokens,
    Surface,
    Tokens,
    TopLogprobs,
)

SMALL = 24
"""Columns of a real edge's value in a campaign, at most."""


class Subject(Struct, frozen=True, kw_only=True):
    """A contract and a plan that the checker accepts, under a name that ids start with.

    ``files`` are the command-line arguments that name it, where it was read from files.
    """

    name: str
    contract: Contract
    plan: Plan
    files: str = ""

    def replay(self, mutant_id: str) -> str:
        """The command that shows one of its mutants."""
        return f"sembridge mutate {self.files} --show '{mutant_id}'".replace("  ", " ")


def reduced(contract: Contract) -> Contract:
    """The same contract over fewer columns: legality does not depend on the payload's size.

    A logits edge has 800,256 elements, and executing thousands of its mutants is not affordable.
    """
    value = contract.value
    if not value.shape or value.shape[-1] <= SMALL:
        return contract
    valid = value.valid_last and SMALL - (value.valid_last < value.shape[-1])
    small = msgspec.structs.replace(value, shape=(*value.shape[:-1], SMALL), valid_last=valid)
    return msgspec.structs.replace(contract, value=small)


class Obligation(Struct, frozen=True, kw_only=True):
    """What a member of the family obliges to, given its producers."""

    placement: Placement
    classes: Callable[[list[str]], Any] = lambda p: None
    owner: Callable[[list[str]], Any] = lambda p: None
    shape: tuple[int, ...] = (2, 11)
    surfaces: tuple[str, ...] = ("complete", "tokens", "logprobs")


OBLIGATIONS: dict[str, Obligation] = {
    "replica": Obligation(
        placement=Replicate(),
        classes=lambda p: (tuple(p),),
        surfaces=("complete", "tokens", "logprobs", "chosen", "top"),
    ),
    "two-classes": Obligation(
        placement=Replicate(), classes=lambda p: (tuple(p[:1]), tuple(p[1:]))
    ),
    "replicate": Obligation(placement=Replicate()),
    "shard": Obligation(placement=Shard(dim=0)),
    "vocabulary": Obligation(placement=Shard(dim=1), surfaces=("sharded",)),
    "partial": Obligation(placement=Partial(op="sum")),
    "partial-empty": Obligation(placement=Partial(op="sum"), shape=(0, 11)),
    "partial-owner": Obligation(placement=Partial(op="sum"), owner=lambda p: (p[-1],)),
    "owner": Obligation(placement=Replicate(), owner=lambda p: (p[-1],)),
    "class-owners": Obligation(
        placement=Replicate(), classes=lambda p: (tuple(p),), owner=lambda p: tuple(p)
    ),
}
CHOICES = (Choice(temperature=0.7, seed=1, position=0), Choice(banned=(0,)))
SURFACES: dict[str, Callable[[int], Surface]] = {
    "complete": lambda lanes: Complete(),
    "tokens": lambda lanes: Tokens(),
    "logprobs": lambda lanes: Logprobs(),
    "chosen": lambda lanes: ChosenTokens(choices=CHOICES),
    "top": lambda lanes: TopLogprobs(k=3),
    "sharded": lambda lanes: ShardedTokens(vocabulary=11 * lanes - 1),
}
"""Surfaces, given how many lanes there are."""

SHAPES: dict[str, tuple[str, ...]] = {
    "tp2.d1": ("far", "far"),
    "tp2.d2": ("far", "farther"),
    "tp2.home": ("head", "far"),
    "tp3.spare": ("far", "far", "(farther)"),
    "tp4.d3": ("far", "far", "farther", "farthest"),
}
"""Domains of the consumer lanes, an undemanded lane's in parentheses; the producers, one for
each lane, are all in ``head``."""


def family() -> Iterator[Contract]:
    """Small contracts: every obligation, surface and shape of the tables above."""
    for kind, obligation in OBLIGATIONS.items():
        for surface_name in obligation.surfaces:
            for shape, lanes in SHAPES.items():
                ids = [f"p{i}" for i in range(len(lanes))]
                domains = [lane.strip("()") for lane in lanes]
                classes, owner = obligation.classes(ids), obligation.owner(ids)
                placement = obligation.placement
                reduction = None
                if isinstance(placement, Partial):
                    value = Reduction(op=placement.op, sources=tuple(ids))
                    reduction = Fact(value=value, origin="graph")
                yield Contract(
                    name=f"{kind}.{surface_name}.{shape}",
                    value=Value(kind="logits", shape=obligation.shape, dtype="float32"),
                    domains={d: Domain(stack="cuda") for d in ("head", *domains)},
                    producers=tuple(Producer(id=p, domain="head") for p in ids),
                    consumers=tuple(
                        Consumer(id=f"c{i}", domain=d, source=ids[i], demanded=d == lanes[i])
                        for i, d in enumerate(domains)
                    ),
                    placement=placement,
                    facts=Facts(
                        replica_classes=classes and Fact(value=classes, origin="graph"),
                        reduction=reduction,
                        owner=owner and Fact(value=owner, origin="runtime"),
                        demand=DemandFact(origin="runtime"),
                        surface=Fact(value=SURFACES[surface_name](len(lanes)), origin="runtime"),
                    ),
                    tag=Tag(request="family", token=0, microbatch=0, epoch=0),
                )


def subjects_of(source: str, contracts: Iterable[Contract]) -> dict[str, Subject]:
    """Contracts with their semantic and reference plans, by name; equal plans count once."""
    found: dict[str, Subject] = {}
    for contract in contracts:
        ob = resolve_valid(contract)
        plans: dict[Plan, str] = {}
        for policy in (SEMANTIC, REFERENCE):
            plans.setdefault(lower_valid(ob, policy)[0], policy.name)
        for plan, policy_name in plans.items():
            name = f"{source}/{contract.name}/{policy_name}"
            found[name] = Subject(name=name, contract=contract, plan=plan)
    return found
