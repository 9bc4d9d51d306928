"""The typed boundary contract (§3.1, equation 1) with field-level origin, and how facts make one.

A :class:`Contract` is what a file says. Which of its facts authorize anything is decided in one
place, :mod:`sembridge.obligations`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

from sembridge.errors import BadInput
from sembridge.layout import Lane, Layout, Operator, Placement
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


class Contract(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.contract/1",
    forbid_unknown_fields=True,
    omit_defaults=True,
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


class BoundaryEdge(Struct, frozen=True, kw_only=True):
    """What the partition fixes: endpoints, domains, value and placement of one edge."""

    name: str
    value: Value
    domains: dict[str, Domain]
    producers: tuple[Producer, ...]
    consumers: tuple[Lane, ...]
    placement: Placement
    lifetime: str | None = None
    framing_group: str | None = None


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


def _fact(
    value: T | None, origin: Origin, by: str | None, seen: T | None, seen_by: str | None
) -> Fact[T] | None:
    if value is not None:
        return Fact(value=value, origin=origin, by=by)
    if seen is not None:
        return Fact(value=seen, origin="validation", by=seen_by)
    return None


def build_contract(
    edge: BoundaryEdge,
    graph: GraphFacts = NO_GRAPH,
    runtime: RuntimeFacts = NO_RUNTIME,
    evidence: Evidence = NO_EVIDENCE,
) -> Contract:
    """Algorithm 1, line 1: an immutable contract whose every fact carries its origin.

    Facts that neither graph nor runtime gives stay absent, or are kept as evidence of origin
    ``validation``. References and obligations are checked by
    :func:`sembridge.obligations.resolve`.

    Raises:
        BadInput: a demanded consumer is none of the edge's.
    """
    demanded = runtime.demanded
    if demanded is not None and not {lane.id for lane in edge.consumers}.issuperset(demanded):
        unknown = sorted(set(demanded) - {lane.id for lane in edge.consumers})
        raise BadInput(f"demanded consumers that the edge does not have: {unknown}")
    facts = Facts(
        replica_classes=_fact(
            graph.replica_classes, "graph", graph.by, evidence.replica_classes, evidence.by
        ),
        reduction=_fact(graph.reduction, "graph", graph.by, None, None),
        owner=_fact(runtime.owner, "runtime", runtime.by, evidence.owner, evidence.by),
        demand=None if demanded is None else DemandFact(origin="runtime", by=runtime.by),
        surface=_fact(runtime.surface, "runtime", runtime.by, evidence.surface, evidence.by),
    )
    return Contract(
        name=edge.name,
        value=edge.value,
        domains=edge.domains,
        producers=edge.producers,
        consumers=tuple(
            [
                Consumer(
                    id=lane.id,
                    domain=lane.domain,
                    source=lane.source,
                    demanded=demanded is None or lane.id in demanded,
                )
                for lane in edge.consumers
            ]
        ),
        placement=edge.placement,
        facts=facts,
        tag=runtime.tag,
        lifetime=edge.lifetime,
        framing_group=edge.framing_group,
    )


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
