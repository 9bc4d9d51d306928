"""The 72 structural cases (§6.2): four obligations over TP, consumer domains and demand.

The paper's own matrix is in a supplement that is not public. This family is a reconstruction: it
agrees with everything the paper says of its matrix, and its demand variants and payload sizes
are calibrated to the published counts. Other families may agree as well; ``sensitivity`` shows
what moves when they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from oracle.byte_only import plan_bytes
from oracle.layout_only import Redistribution, calibrated, plan_layout
from sembridge.contract import (
    BoundaryEdge,
    Contract,
    Domain,
    GraphFacts,
    Producer,
    Reduction,
    RuntimeFacts,
    Value,
    build_contract,
    layout_of,
)
from sembridge.layout import Lane, Partial, Placement, Replicate, Shard
from sembridge.lowering import REFERENCE, lower
from sembridge.obligations import resolve
from sembridge.plan import AnyOp, Plan, Tag

SHAPES: tuple[tuple[int, int], ...] = ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 3))
"""(TP degree, consumer domains): D ≤ min(TP, 3)."""

TAG = Tag(request="matrix", token=0, microbatch=0, epoch=0)

Demand = Callable[[list[list[str]]], list[str]]
"""Which lanes are demanded, of the lanes of each consumer domain."""

DEMANDS: tuple[tuple[str, Demand], ...] = (
    ("every lane", lambda domains: [c for lanes in domains for c in lanes]),
    ("the first domain's lanes", lambda domains: list(domains[0])),
    ("the last lane of each domain", lambda domains: [lanes[-1] for lanes in domains]),
)
"""Variants v0, v1, v2."""


class Payload(Struct, frozen=True, kw_only=True):
    """Elements of the whole value (of one producer's, unless ``per_lane``), and its dtype."""

    elements: int
    dtype: str
    per_lane: bool = False


PAYLOADS: dict[str, Payload] = {
    "replica": Payload(elements=15, dtype="bfloat16"),
    "exact_shard": Payload(elements=16, dtype="bfloat16", per_lane=True),
    "partial": Payload(elements=6, dtype="float32"),
    "authority": Payload(elements=2, dtype="int32"),
}
OBLIGATIONS: tuple[str, ...] = tuple(PAYLOADS)


class Case(Struct, frozen=True, kw_only=True):
    """One case of the matrix and the contract it stands for."""

    id: str
    obligation: str
    tp: int
    domains: int
    demand: str
    contract: Contract


def case(
    obligation: str,
    tp: int,
    domains: int,
    variant: int,
    *,
    demands: tuple[tuple[str, Demand], ...] = DEMANDS,
    payloads: dict[str, Payload] | None = None,
) -> Case:
    """Build one case from facts, the way a frontend would."""
    payload = (payloads or PAYLOADS)[obligation]
    producers = [f"p{i}" for i in range(tp)]
    lanes: list[list[str]] = [[] for _ in range(domains)]
    for i in range(tp):
        lanes[i * domains // tp].append(f"c{i}")
    demand_name, demand = demands[variant]
    elements = payload.elements // tp if payload.per_lane else payload.elements
    graph, owner = GraphFacts(), None
    placement: Placement = Replicate()
    match obligation:
        case "replica":
            graph = GraphFacts(replica_classes=(tuple(producers),), by="all_reduce")
        case "exact_shard":
            placement = Shard(dim=0)
        case "partial":
            placement = Partial(op="sum")
            graph = GraphFacts(reduction=Reduction(op="sum", sources=tuple(producers)))
        case "authority":
            owner = (producers[variant % tp],)
        case _:
            raise KeyError(obligation)
    name = f"{obligation}.tp{tp}.d{domains}.v{variant}"
    edge = BoundaryEdge(
        name=name,
        value=Value(
            kind="decision" if obligation == "authority" else "hidden",
            shape=(elements,),
            dtype=payload.dtype,
        ),
        domains={"head": Domain(stack="cuda")}
        | {f"tail{d}": Domain(stack="cann") for d in range(domains)},
        producers=tuple(Producer(id=p, domain="head") for p in producers),
        consumers=tuple(
            Lane(id=c, domain=f"tail{d}", source=f"p{c[1:]}")
            for d, ids in enumerate(lanes)
            for c in ids
        ),
        placement=placement,
    )
    runtime = RuntimeFacts(demanded=demand(lanes), owner=owner, tag=TAG)
    return Case(
        id=name,
        obligation=obligation,
        tp=tp,
        domains=domains,
        demand=demand_name,
        contract=build_contract(edge, graph, runtime),
    )


def matrix(
    *,
    demands: tuple[tuple[str, Demand], ...] = DEMANDS,
    payloads: dict[str, Payload] | None = None,
) -> Iterator[Case]:
    """All cases: obligations × (TP, domains) × demand variants; 72 with the defaults."""
    for obligation in OBLIGATIONS:
        for tp, domains in SHAPES:
            for variant in range(len(demands)):
                yield case(obligation, tp, domains, variant, demands=demands, payloads=payloads)


def plan_of(contract: Contract, ops: tuple[AnyOp, ...]) -> Plan:
    """Ops of a planner that knows no identity, as a plan for ``contract``."""
    return Plan(contract=contract.name, tag=contract.tag, ops=ops)


def layout_only(contract: Contract, redistribute: Redistribution = calibrated) -> Plan:
    """The Layout-Only plan: made from the contract's layout, and named for the contract."""
    return plan_of(contract, plan_layout(layout_of(contract), redistribute))


def byte_only(contract: Contract) -> Plan:
    """The byte-only minimizer's proposal."""
    return plan_of(contract, plan_bytes(resolve(contract)))


PLANNERS: dict[str, Callable[[Contract], Plan]] = {
    "semantic": lower,
    "reference": lambda contract: lower(contract, REFERENCE),
    "layout-only": layout_only,
    "byte-only": byte_only,
}
"""The four planners that every case is given to."""
