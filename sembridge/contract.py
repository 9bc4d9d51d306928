"""The typed boundary contract (§3.1, equation 1) with field-level origin, and how facts make one.

A :class:`Contract` is what a file says. Which of its facts authorize anything is decided in one
place, :mod:`sembridge.obligations`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Annotated, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from sembridge.errors import BadInput
from sembridge.layout import Lane, Layout, Operator, Placement, stable_order
from sembridge.plan import Name, Names, Tag
from sembridge.surfaces import Surface

T = TypeVar("T")

Origin = Literal["graph", "runtime", "validation"]
Stack = Literal["cuda", "cann", "cpu"]
Dim = Annotated[int, Meta(ge=0, le=2**48)]
Text = Annotated[str, Meta(max_length=1024)]


class Fact(
    Struct, Generic[T], frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A fact, where it comes from, and the node or component that established it."""

    value: T
    origin: Origin
    by: Text | None = None

    @property
    def authorizes(self) -> bool:
        """Graph and runtime facts authorize; validation is evidence only (§3.4)."""
        return self.origin != "validation"


class DemandFact(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Says that the consumers' ``demanded`` flags are known; without it all are demanded."""

    origin: Origin
    by: Text | None = None

    @property
    def authorizes(self) -> bool:
        """As :attr:`Fact.authorizes`."""
        return self.origin != "validation"


class Reduction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An outstanding reduction R: the operator and the producers it combines."""

    op: Operator
    sources: Names


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The contract's facts; an absent one selects the layout-materializing obligation."""

    replica_classes: Fact[tuple[Names, ...]] | None = None
    reduction: Fact[Reduction] | None = None
    owner: Fact[Names] | None = None
    demand: DemandFact | None = None
    surface: Fact[Surface] | None = None


class Value(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one producer holds: kind K, shape, dtype; columns from ``valid_last`` on are padding."""

    kind: Name
    shape: Annotated[tuple[Dim, ...], Meta(max_length=16)]
    dtype: Name
    valid_last: Dim | None = None


class Domain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A native collective domain: endpoints that share one vendor communicator."""

    stack: Stack


class Producer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A producer endpoint of P."""

    id: Name
    domain: Name


class Consumer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A possible consumer endpoint of C, its mapped producer μ(c), and whether it is demanded."""

    id: Name
    domain: Name
    source: Name
    demanded: bool


class Mesh(Struct, frozen=True, kw_only=True):
    """The endpoints that a partition fixes, indexed once for all contracts on them.

    ``producers`` and ``consumers`` are ids in stable order, ``order`` the positions of the
    latter in the contract's own order, ``home`` a producer's domain, ``mapped`` is μ.
    """

    producers: list[str]
    consumers: list[str]
    order: list[int]
    home: dict[str, str]
    mapped: dict[str, str]
    domain_of: dict[str, str]


def index_mesh(
    domains: dict[str, Domain],
    producers: tuple[Producer, ...],
    consumers: tuple[Consumer, ...] | tuple[Lane, ...],
) -> Mesh:
    """Index endpoints; linear but for the stable order's sort.

    Raises:
        BadInput: a duplicate id, or a reference to no domain or no producer.
    """
    home = {p.id: p.domain for p in producers}
    mapped = {c.id: c.source for c in consumers}
    domain_of = home | {c.id: c.domain for c in consumers}
    if not (
        len(domain_of) == len(producers) + len(consumers)
        and domains.keys() >= set(domain_of.values())
        and home.keys() >= set(mapped.values())
    ):
        raise _broken_reference(domains, producers, consumers)
    ids = stable_order(list(mapped))
    position = {c.id: i for i, c in enumerate(consumers)}
    return Mesh(
        producers=stable_order(list(home)),
        consumers=ids,
        order=[position[c] for c in ids],
        home=home,
        mapped=mapped,
        domain_of=domain_of,
    )


def _broken_reference(
    domains: dict[str, Domain],
    producers: tuple[Producer, ...],
    consumers: tuple[Consumer, ...] | tuple[Lane, ...],
) -> BadInput:
    """Name the first field whose ids do not fit together."""
    seen: set[str] = set()
    for group, endpoints in (("producers", producers), ("consumers", consumers)):
        for i, endpoint in enumerate(endpoints):
            path = f"$.{group}[{i}]"
            if endpoint.id in seen:
                return BadInput(f"duplicate id {endpoint.id!r}", path=f"{path}.id")
            seen.add(endpoint.id)
            if endpoint.domain not in domains:
                return BadInput(f"no such domain {endpoint.domain!r}", path=f"{path}.domain")
    known = {p.id for p in producers}
    i, stray = next((i, c) for i, c in enumerate(consumers) if c.source not in known)
    return BadInput(f"no such producer {stray.source!r}", path=f"$.consumers[{i}].source")


class Contract(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.contract/1",
    forbid_unknown_fields=True,
    omit_defaults=True,
    dict=True,
):
    """e = ⟨P, C_req, D, K, Γ, R, O, Q⟩ with shape, dtype, placement and lifetime (equation 1)."""

    name: Name
    value: Value
    domains: dict[Name, Domain]
    producers: tuple[Producer, ...]
    consumers: tuple[Consumer, ...]
    placement: Placement
    facts: Facts = field(default_factory=Facts)
    tag: Tag | None = None
    lifetime: Text | None = None
    framing_group: Text | None = None

    @cached_property
    def mesh(self) -> Mesh:
        """The indexed endpoints; a broken reference raises :class:`BadInput`."""
        return index_mesh(self.domains, self.producers, self.consumers)


class BoundaryEdge(Struct, frozen=True, kw_only=True, dict=True):
    """What the partition fixes: endpoints, domains, value and placement of one edge."""

    name: str
    value: Value
    domains: dict[str, Domain]
    producers: tuple[Producer, ...]
    consumers: tuple[Lane, ...]
    placement: Placement
    lifetime: str | None = None
    framing_group: str | None = None

    @cached_property
    def mesh(self) -> Mesh:
        """The indexed endpoints; a broken reference raises :class:`BadInput`."""
        return index_mesh(self.domains, self.producers, self.consumers)

    @cached_property
    def all_demanded(self) -> tuple[Consumer, ...]:
        """The consumers of a contract that demands every one of them."""
        return _consumers(self.consumers, None)


def _consumers(lanes: tuple[Lane, ...], demanded: Collection[str] | None) -> tuple[Consumer, ...]:
    return tuple(
        [
            Consumer(
                id=lane.id,
                domain=lane.domain,
                source=lane.source,
                demanded=demanded is None or lane.id in demanded,
            )
            for lane in lanes
        ]
    )


class GraphFacts(Struct, frozen=True, kw_only=True):
    """What the graph establishes (§3.4): completed all-reduce lineage, partial lineage."""

    replica_classes: tuple[Names, ...] | None = None
    reduction: Reduction | None = None
    by: str | None = None


class RuntimeFacts(Struct, frozen=True, kw_only=True):
    """What the request and the runtime establish: demand, surface, owner, execution tag."""

    demanded: Collection[str] | None = None
    surface: Surface | None = None
    owner: Names | None = None
    tag: Tag | None = None
    by: str | None = None


class Evidence(Struct, frozen=True, kw_only=True):
    """Observations of validation runs (byte equality, say): kept, and never authorizing."""

    replica_classes: tuple[Names, ...] | None = None
    owner: Names | None = None
    surface: Surface | None = None
    by: str | None = None


NO_GRAPH, NO_RUNTIME, NO_EVIDENCE = GraphFacts(), RuntimeFacts(), Evidence()


def build_contract(
    edge: BoundaryEdge,
    graph: GraphFacts = NO_GRAPH,
    runtime: RuntimeFacts = NO_RUNTIME,
    evidence: Evidence = NO_EVIDENCE,
) -> Contract:
    """Algorithm 1, line 1: an immutable contract whose every fact carries its origin.

    Facts that neither graph nor runtime gives stay absent, or are kept as evidence of origin
    ``validation``. Obligations are checked by :mod:`sembridge.obligations`.

    Raises:
        BadInput: a broken reference, or a demanded consumer that is none of the edge's.
    """
    mesh, demanded = edge.mesh, runtime.demanded
    consumers = edge.all_demanded
    if demanded is not None:
        if not mesh.mapped.keys() >= set(demanded):
            stray = sorted(set(demanded) - mesh.mapped.keys())
            raise BadInput(f"demanded consumers that the edge does not have: {stray}")
        if len(demanded) != len(consumers):
            consumers = _consumers(edge.consumers, demanded)
    classes: Fact[tuple[Names, ...]] | None = None
    if graph.replica_classes is not None:
        classes = Fact(value=graph.replica_classes, origin="graph", by=graph.by)
    elif evidence.replica_classes is not None:
        classes = Fact(value=evidence.replica_classes, origin="validation", by=evidence.by)
    reduction: Fact[Reduction] | None = None
    if graph.reduction is not None:
        reduction = Fact(value=graph.reduction, origin="graph", by=graph.by)
    owner: Fact[Names] | None = None
    if runtime.owner is not None:
        owner = Fact(value=runtime.owner, origin="runtime", by=runtime.by)
    elif evidence.owner is not None:
        owner = Fact(value=evidence.owner, origin="validation", by=evidence.by)
    surface: Fact[Surface] | None = None
    if runtime.surface is not None:
        surface = Fact(value=runtime.surface, origin="runtime", by=runtime.by)
    elif evidence.surface is not None:
        surface = Fact(value=evidence.surface, origin="validation", by=evidence.by)
    contract = Contract(
        name=edge.name,
        value=edge.value,
        domains=edge.domains,
        producers=edge.producers,
        consumers=consumers,
        placement=edge.placement,
        facts=Facts(
            replica_classes=classes,
            reduction=reduction,
            owner=owner,
            demand=None if demanded is None else DemandFact(origin="runtime", by=runtime.by),
            surface=surface,
        ),
        tag=runtime.tag,
        lifetime=edge.lifetime,
        framing_group=edge.framing_group,
    )
    # The edge's endpoints are the contract's: index them once for both.
    force_setattr(contract, "mesh", mesh)
    return contract


def layout_of(contract: Contract) -> Layout:
    """The part of a contract that a layout states; demand, surface and owner are not in it."""
    return Layout(
        shape=contract.value.shape,
        dtype=contract.value.dtype,
        producers=tuple(Lane(id=p.id, domain=p.domain) for p in contract.producers),
        consumers=tuple(
            Lane(id=c.id, domain=c.domain, source=c.source) for c in contract.consumers
        ),
        placement=contract.placement,
    )
