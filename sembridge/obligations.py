"""From a contract to the obligations it authorizes, and their static validation (§3.4, §3.5).

``resolve`` reads each fact once and keeps only what its origin authorizes: this is the single
place where "absent means the layout-materializing plan" is decided. The lowerer and every judge
work on the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sembridge.contract import Contract
from sembridge.errors import BadInput, ContractRejected
from sembridge.layout import DTYPES, Partial, Replicate, Shard, elements_of, stable_order
from sembridge.plan import VALUE
from sembridge.surfaces import Complete, Projected, Surface
from sembridge.verdict import Violation

MAX_ELEMENTS = 2**62
COMPLETE = Complete()


class Obligations:
    """Equation 1 as the contract's authorizing facts give it, indexed for one pass over it.

    ``producers`` and ``consumers`` are ids in stable order, ``demanded`` the demanded among the
    consumers (C_req); ``mapped`` is μ; ``class_of`` names the substitutable class Γ of a
    producer that has one; ``owners`` is None where no authority is required; ``reduced`` is the
    source set of an outstanding reduction R, ``operator`` its operator. Sizes are in bytes and
    elements of what one producer holds.
    """

    __slots__ = (
        "class_of",
        "consumers",
        "contract",
        "demanded",
        "domain_of",
        "elements",
        "mapped",
        "observed",
        "operator",
        "owners",
        "partial",
        "producer_set",
        "producers",
        "projected",
        "reduced",
        "replicate",
        "surface",
        "value_bytes",
    )

    contract: Contract
    producers: list[str]
    producer_set: dict[str, str]
    consumers: list[str]
    demanded: list[str]
    domain_of: dict[str, str]
    mapped: dict[str, str]
    class_of: dict[str, frozenset[str]]
    owners: frozenset[str] | None
    reduced: frozenset[str] | None
    operator: str | None
    replicate: bool
    partial: bool
    surface: Surface
    projected: Projected | None
    observed: tuple[str, ...]
    elements: int
    value_bytes: int

    def members(self, producer: str) -> frozenset[str]:
        """The producers that ``producer`` may be substituted by, itself included."""
        return self.class_of.get(producer) or frozenset((producer,))

    def surface_bytes(self, surface: str) -> int:
        """Payload bytes of one whole copy of ``surface``; 0 for one the contract never names."""
        if surface == VALUE:
            return self.value_bytes
        if self.projected and surface == self.projected.output:
            return self.projected.output_bytes(self.contract.value.shape)
        return 0


def resolve(contract: Contract) -> Obligations:
    """Index a contract and keep what its facts authorize.

    Linear in endpoints but for the stable order's sort.

    Raises:
        BadInput: a reference to nothing, a duplicate id, an unknown dtype, an impossible shape;
            the error's path names the field.
    """
    value, facts = contract.value, contract.facts
    ob = Obligations()
    ob.contract = contract
    ob.producer_set = {p.id: p.domain for p in contract.producers}
    ob.mapped = {c.id: c.source for c in contract.consumers}
    ob.domain_of = domain_of = dict(ob.producer_set)
    for c in contract.consumers:
        domain_of[c.id] = c.domain
    if not (
        len(domain_of) == len(contract.producers) + len(contract.consumers)
        and contract.domains.keys() >= set(domain_of.values())
        and ob.producer_set.keys() >= set(ob.mapped.values())
    ):
        raise _broken_reference(contract)
    ob.producers = stable_order(list(ob.producer_set))
    ob.consumers = stable_order(list(ob.mapped))

    demand = facts.demand
    if demand is not None and demand.authorizes:
        wanted = {c.id for c in contract.consumers if c.demanded}
        ob.demanded = [c for c in ob.consumers if c in wanted]
    else:
        ob.demanded = ob.consumers

    dtype = DTYPES.get(value.dtype)
    if dtype is None:
        raise BadInput(f"no such dtype {value.dtype!r}", path="$.value.dtype")
    ob.elements = elements_of(value.shape)
    if ob.elements > MAX_ELEMENTS:
        raise BadInput(f"more than 2**62 elements: {ob.elements}", path="$.value.shape")
    ob.value_bytes = ob.elements * dtype.itemsize
    if value.valid_last is not None and not (value.shape and value.valid_last <= value.shape[-1]):
        raise BadInput(
            f"{value.valid_last} columns of a last axis of {value.shape[-1:]} are valid",
            path="$.value.valid_last",
        )
    placement = contract.placement
    if isinstance(placement, Shard) and not (-len(value.shape) <= placement.dim < len(value.shape)):
        raise BadInput(
            f"{placement.dim} is no axis of a value of rank {len(value.shape)}",
            path="$.placement.dim",
        )
    ob.replicate = isinstance(placement, Replicate)
    ob.partial = isinstance(placement, Partial)

    ob.class_of = {}
    classes = facts.replica_classes
    if classes is not None:
        class_of = _partition(classes.value, ob.producer_set)
        if classes.authorizes:
            ob.class_of = class_of

    ob.owners = None
    if facts.owner is not None:
        _known(facts.owner.value, ob.producer_set, "$.facts.owner.value")
        if facts.owner.authorizes:
            ob.owners = frozenset(facts.owner.value)

    ob.reduced = ob.operator = None
    reduction = facts.reduction
    if reduction is not None:
        _known(reduction.value.sources, ob.producer_set, "$.facts.reduction.value.sources")
        if reduction.authorizes:
            ob.reduced = frozenset(reduction.value.sources)
            ob.operator = reduction.value.op

    surface = facts.surface
    ob.surface = surface.value if surface is not None and surface.authorizes else COMPLETE
    ob.projected = ob.surface.projected
    if ob.projected is None:
        ob.observed = (VALUE,)
    else:
        if ob.projected.dtype not in DTYPES:
            raise BadInput(
                f"no such dtype {ob.projected.dtype!r}",
                path="$.facts.surface.value.output_dtype",
            )
        output = (ob.projected.output,)
        ob.observed = (VALUE, *output) if ob.surface.keeps_value else output
    return ob


def _partition(
    classes: tuple[tuple[str, ...], ...], producers: dict[str, str]
) -> dict[str, frozenset[str]]:
    class_of: dict[str, frozenset[str]] = {}
    listed = 0
    for i, members in enumerate(classes):
        path = f"$.facts.replica_classes.value[{i}]"
        _known(members, producers, path)
        if not members:
            raise BadInput("a class without members", path=path)
        listed += len(members)
        class_of.update(dict.fromkeys(members, frozenset(members)))
        if len(class_of) != listed:
            raise BadInput("a producer is in two classes, or twice in one", path=path)
    return class_of


def _known(ids: tuple[str, ...], producers: dict[str, str], path: str) -> None:
    for i, name in enumerate(ids):
        if name not in producers:
            raise BadInput(f"no such producer {name!r}", path=f"{path}[{i}]")


def _broken_reference(contract: Contract) -> BadInput:
    """Name the first field of a contract whose ids do not fit together."""
    seen: set[str] = set()
    for group, endpoints in (("producers", contract.producers), ("consumers", contract.consumers)):
        for i, endpoint in enumerate(endpoints):
            path = f"$.{group}[{i}]"
            if endpoint.id in seen:
                return BadInput(f"duplicate id {endpoint.id!r}", path=f"{path}.id")
            seen.add(endpoint.id)
            if endpoint.domain not in contract.domains:
                return BadInput(f"no such domain {endpoint.domain!r}", path=f"{path}.domain")
    producers = {p.id for p in contract.producers}
    for i, consumer in enumerate(contract.consumers):
        if consumer.source not in producers:
            return BadInput(
                f"no such producer {consumer.source!r}", path=f"$.consumers[{i}].source"
            )
    raise AssertionError("unreachable: every reference holds")


ContractRule = Callable[[Obligations], Iterator[str]]
CONTRACT_RULES: list[tuple[str, ContractRule]] = []
"""Static validation (§3.5): (rule name, what it says is wrong). To add a rule, add one entry."""


def contract_rule(name: str) -> Callable[[ContractRule], ContractRule]:
    """Register a validation rule under ``contract.<name>``."""

    def register(rule: ContractRule) -> ContractRule:
        CONTRACT_RULES.append((f"contract.{name}", rule))
        return rule

    return register


@contract_rule("demand")
def _somebody_is_demanded(ob: Obligations) -> Iterator[str]:
    if not ob.demanded:
        yield "no consumer is demanded"


@contract_rule("owner")
def _owner_is_unique(ob: Obligations) -> Iterator[str]:
    if ob.owners is None:
        return
    if not ob.owners:
        yield "authority is required and nobody owns the decision"
    elif len(ob.owners) > 1 and not ob.owners <= ob.members(next(iter(ob.owners))):
        yield f"owners {sorted(ob.owners)} are joined by no replica class"


@contract_rule("reduction")
def _reduction_has_its_lineage(ob: Obligations) -> Iterator[str]:
    placement, fact = ob.contract.placement, ob.contract.facts.reduction
    if ob.reduced is None:
        if ob.partial:
            yield "a partial placement without an authorized reduction: no plan can complete it"
        return
    assert fact is not None
    if not isinstance(placement, Partial):
        yield "a reduction over values that the placement calls complete"
        return
    if placement.op != ob.operator:
        yield f"operator {ob.operator!r} is not the placement's {placement.op!r}"
    if ob.reduced != ob.producer_set.keys() or len(fact.value.sources) != len(ob.reduced):
        yield "the sources are not exactly the producers"
    elif len(set(ob.producer_set.values())) > 1:
        yield "the producers span several native domains: no native reduction can complete it"


@contract_rule("observation")
def _observation_is_compatible(ob: Obligations) -> Iterator[str]:
    if ob.projected and ob.partial and ob.reduced is None:
        yield f"a {ob.projected.output} surface over partials that nothing completes"


@contract_rule("projection")
def _value_can_carry_the_projection(ob: Obligations) -> Iterator[str]:
    projected, value, placement = ob.projected, ob.contract.value, ob.contract.placement
    if projected is None:
        return
    if not value.shape:
        yield f"{projected.name} over a scalar"
        return
    columns = value.shape[-1] if value.valid_last is None else value.valid_last
    if not DTYPES[value.dtype].floating:
        yield f"{projected.name} over {value.dtype}"
    if columns == 0:
        yield f"{projected.name} over a zero-length axis"
    elif columns - 1 > DTYPES[projected.dtype].largest_index:
        yield f"{projected.dtype} cannot hold index {columns - 1}"
    if isinstance(placement, Shard) and placement.dim % len(value.shape) == len(value.shape) - 1:
        yield f"{projected.name} along the sharded axis: no combine over shards is registered"


def validate(ob: Obligations) -> list[Violation]:
    """Every violation of static validation, in registry order; empty for a valid contract."""
    return [
        Violation(rule=name, message=message)
        for name, rule in CONTRACT_RULES
        for message in rule(ob)
    ]


def resolve_valid(contract: Contract) -> Obligations:
    """:func:`resolve` and :func:`validate`, raising :class:`ContractRejected` on a violation."""
    ob = resolve(contract)
    violations = validate(ob)
    if violations:
        raise ContractRejected(contract.name, violations)
    return ob
