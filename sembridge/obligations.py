"""From a contract to the obligations it authorizes, and their static validation (§3.4, §3.5).

``resolve`` reads each fact once and keeps only what its origin authorizes: this is the single
place where "absent means the layout-materializing plan" is decided. The lowerer and every judge
work on the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter

from sembridge.contract import Contract, Value
from sembridge.errors import BadInput, ContractRejected
from sembridge.layout import DTYPES, Partial, Placement, Replicate, Shard, elements_of
from sembridge.plan import VALUE
from sembridge.surfaces import (
    MAX_COLUMNS,
    PARAMETERS,
    Complete,
    Projected,
    Surface,
    observed,
)
from sembridge.verdict import Violation

MAX_ELEMENTS = 2**62
COMPLETE = Complete()
_IS_DEMANDED = attrgetter("demanded")


class Obligations:
    """Equation 1 as the contract's authorizing facts give it, indexed for one pass over it.

    ``producers`` and ``consumers`` are ids in stable order, ``demanded`` the demanded among the
    consumers (C_req); ``mapped`` is μ; ``class_of`` names the substitutable class Γ of a
    producer that has one; ``owners`` is None where no authority is required; ``reduced`` is the
    source set of an outstanding reduction R, ``operator`` its operator, ``completes`` the surface
    that it completes: the value, or the result of a projection of shards. ``elements`` and
    ``value_bytes`` are of what one producer holds, ``sizes`` the bytes of one whole copy of each
    surface.
    """

    __slots__ = (
        "class_of",
        "completes",
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
        "sizes",
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
    completes: str
    replicate: bool
    partial: bool
    surface: Surface
    projected: Projected | None
    observed: tuple[str, ...]
    elements: int
    value_bytes: int
    sizes: dict[str, int]

    def members(self, producer: str) -> frozenset[str]:
        """The producers that ``producer`` may be substituted by, itself included."""
        return self.class_of.get(producer) or frozenset((producer,))

    @property
    def informs(self) -> bool:
        """Whether parameters have to reach a producer before it can project."""
        projected = self.projected
        return projected is not None and bool(projected.choices) and not projected.everywhere

    @property
    def informed(self) -> list[str]:
        """The endpoints that know the projection's parameters to begin with."""
        everywhere = self.projected is not None and self.projected.everywhere
        return self.consumers + self.producers if everywhere else self.consumers


def resolve(contract: Contract) -> Obligations:
    """Index a contract and keep what its facts authorize.

    Linear in endpoints but for the stable order's sort.

    Raises:
        BadInput: a reference to nothing, a duplicate id, an unknown dtype, an impossible shape;
            the error's path names the field.
    """
    mesh, facts = contract.mesh, contract.facts
    ob = Obligations()
    ob.contract = contract
    ob.producers, ob.producer_set = mesh.producers, mesh.home
    ob.consumers, ob.mapped, ob.domain_of = mesh.consumers, mesh.mapped, mesh.domain_of
    demand = facts.demand
    ob.demanded = ob.consumers
    if demand is not None and demand.authorizes and not all(map(_IS_DEMANDED, contract.consumers)):
        consumers = contract.consumers
        ob.demanded = [c.id for i in mesh.order if (c := consumers[i]).demanded]

    placement = contract.placement
    ob.elements, ob.value_bytes = _size(contract.value, placement)
    ob.replicate = type(placement) is Replicate
    ob.partial = type(placement) is Partial

    classes, owner, reduction = facts.replica_classes, facts.owner, facts.reduction
    ob.class_of = {}
    if classes is not None:
        class_of = _partition(classes.value, mesh.home)
        if classes.authorizes:
            ob.class_of = class_of
    ob.owners = ob.reduced = ob.operator = None
    ob.completes = VALUE
    if owner is not None:
        owners = _known(owner.value, mesh.home, "$.facts.owner.value")
        if owner.authorizes:
            ob.owners = owners
    if reduction is not None:
        sources = reduction.value.sources
        reduced = _known(sources, mesh.home, "$.facts.reduction.value.sources")
        if reduction.authorizes:
            ob.reduced, ob.operator = reduced, reduction.value.op

    fact = facts.surface
    ob.surface = surface = fact.value if fact is not None and fact.authorizes else COMPLETE
    ob.projected = projected = surface.projected
    ob.observed, ob.sizes = (VALUE,), {VALUE: ob.value_bytes}
    if projected is not None:
        if projected.dtype not in DTYPES:
            raise BadInput(
                f"no such dtype {projected.dtype!r}", path="$.facts.surface.value.output_dtype"
            )
        ob.observed = observed(surface)
        ob.sizes[projected.output] = projected.output_bytes(contract.value.shape)
        if projected.choices:
            ob.sizes[PARAMETERS] = projected.parameter_bytes
        if projected.combine is not None and ob.reduced is None:
            ob.reduced, ob.operator = frozenset(mesh.home), projected.combine
            ob.completes = projected.output
    return ob


@lru_cache(maxsize=1024)
def _size(value: Value, placement: Placement) -> tuple[int, int]:
    """Elements and bytes of what one producer holds, once its type makes sense."""
    dtype, rank = DTYPES.get(value.dtype), len(value.shape)
    if dtype is None:
        raise BadInput(f"no such dtype {value.dtype!r}", path="$.value.dtype")
    elements = elements_of(value.shape)
    if elements > MAX_ELEMENTS:
        raise BadInput(f"more than 2**62 elements: {elements}", path="$.value.shape")
    valid = value.valid_last
    if valid is not None and not (value.shape and valid <= value.shape[-1]):
        raise BadInput(
            f"{valid} columns of a last axis of {value.shape[-1:]} are valid",
            path="$.value.valid_last",
        )
    if isinstance(placement, Shard) and not -rank <= placement.dim < rank:
        raise BadInput(
            f"{placement.dim} is no axis of a value of rank {rank}", path="$.placement.dim"
        )
    return elements, elements * dtype.itemsize


def _partition(
    classes: tuple[tuple[str, ...], ...], producers: dict[str, str]
) -> dict[str, frozenset[str]]:
    class_of: dict[str, frozenset[str]] = {}
    listed = 0
    for i, members in enumerate(classes):
        path = f"$.facts.replica_classes.value[{i}]"
        joined = _known(members, producers, path)
        if not members:
            raise BadInput("a class without members", path=path)
        listed += len(members)
        class_of.update(dict.fromkeys(members, joined))
        if len(class_of) != listed:
            raise BadInput("a producer is in two classes, or twice in one", path=path)
    return class_of


def _known(ids: tuple[str, ...], producers: dict[str, str], path: str) -> frozenset[str]:
    """The ids as a set, once each of them is a producer."""
    named = frozenset(ids)
    if not producers.keys() >= named:
        i, stray = next((i, name) for i, name in enumerate(ids) if name not in producers)
        raise BadInput(f"no such producer {stray!r}", path=f"{path}[{i}]")
    return named


ContractRule = Callable[[Obligations], Sequence[str]]
FINE: Sequence[str] = ()
CONTRACT_RULES: list[tuple[str, ContractRule]] = []
"""Static validation (§3.5): (rule name, what it says is wrong). To add a rule, add one entry."""


def contract_rule(name: str) -> Callable[[ContractRule], ContractRule]:
    """Register a validation rule under ``contract.<name>``."""

    def register(rule: ContractRule) -> ContractRule:
        CONTRACT_RULES.append((f"contract.{name}", rule))
        return rule

    return register


@contract_rule("demand")
def _somebody_is_demanded(ob: Obligations) -> Sequence[str]:
    return FINE if ob.demanded else ["no consumer is demanded"]


@contract_rule("owner")
def _owner_is_unique(ob: Obligations) -> Sequence[str]:
    owners = ob.owners
    if owners is None or len(owners) == 1:
        return FINE
    if not owners:
        return ["authority is required and nobody owns the decision"]
    if owners <= ob.members(next(iter(owners))):
        return FINE
    return [f"owners {sorted(owners)} are joined by no replica class"]


@contract_rule("reduction")
def _reduction_has_its_lineage(ob: Obligations) -> Sequence[str]:
    placement, fact = ob.contract.placement, ob.contract.facts.reduction
    if ob.reduced is None or fact is None:
        if ob.partial:
            return ["a partial placement without an authorized reduction: no plan completes it"]
        return FINE
    if not isinstance(placement, Partial):
        return ["a reduction over values that the placement calls complete"]
    found: list[str] = []
    if placement.op != ob.operator:
        found.append(f"operator {ob.operator!r} is not the placement's {placement.op!r}")
    if ob.reduced != ob.producer_set.keys() or len(fact.value.sources) != len(ob.reduced):
        found.append("the sources are not exactly the producers")
    elif len(set(ob.producer_set.values())) > 1:
        found.append("the producers span several native domains: no native reduction joins them")
    return found


@contract_rule("observation")
def _observation_is_compatible(ob: Obligations) -> Sequence[str]:
    if ob.projected and ob.partial and ob.reduced is None:
        return [f"a {ob.projected.output} surface over partials that nothing completes"]
    return FINE


@contract_rule("projection")
def _value_can_carry_the_projection(ob: Obligations) -> Sequence[str]:
    projected = ob.projected
    if projected is None:
        return FINE
    value, placement = ob.contract.value, ob.contract.placement
    if projected.combine is None:
        return _carries(projected, value, placement)
    return _shards_carry(projected, value, placement, len(ob.producers)) + (
        ("the shards span several native domains: no native combine joins them",)
        if len(set(ob.producer_set.values())) > 1
        else ()
    )


@lru_cache(maxsize=1024)
def _carries(projected: Projected, value: Value, placement: Placement) -> tuple[str, ...]:
    """What keeps a value from being projected where it is whole."""
    if not value.shape:
        return (f"{projected.name} over a scalar",)
    columns = value.shape[-1] if value.valid_last is None else value.valid_last
    found = _fits(projected, value, columns)
    if _sharded_last(value, placement):
        found.append(
            f"{projected.name} along the sharded axis: only a sharded projection combines shards"
        )
    return tuple(found)


@lru_cache(maxsize=1024)
def _shards_carry(
    projected: Projected, value: Value, placement: Placement, shards: int
) -> tuple[str, ...]:
    """What keeps the shards of a value from being projected and combined."""
    vocabulary = projected.vocabulary or 0
    if not value.shape or not _sharded_last(value, placement):
        return (f"{projected.name} over a value that is not sharded along its last axis",)
    found = _fits(projected, value, vocabulary)
    if value.valid_last is not None:
        found.append("valid_last beside a vocabulary: the vocabulary says what is padding")
    if vocabulary > shards * value.shape[-1]:
        found.append(f"a vocabulary of {vocabulary} in {shards} shards of {value.shape[-1]}")
    return tuple(found)


def _fits(projected: Projected, value: Value, columns: int) -> list[str]:
    """What keeps rows of ``columns`` columns from being projected."""
    found: list[str] = []
    if not DTYPES[value.dtype].floating:
        found.append(f"{projected.name} over {value.dtype}")
    if columns == 0:
        found.append(f"{projected.name} over a zero-length axis")
    elif columns - 1 > DTYPES[projected.dtype].largest_index:
        found.append(f"{projected.dtype} cannot hold index {columns - 1}")
    if projected.row and columns > MAX_COLUMNS:
        found.append(f"{projected.name} over more than {MAX_COLUMNS} columns")
    if projected.k > columns:
        found.append(f"the {projected.k} largest of {columns} columns")
    rows = elements_of(value.shape[:-1])
    choices = projected.choices
    if choices is not None and len(choices) != rows:
        found.append(f"{len(choices)} choices for {rows} rows")
    for r, choice in enumerate((choices or ())[:rows]):
        found += [f"row {r}: {reason}" for reason in choice.misfits(columns)]
    return found


def _sharded_last(value: Value, placement: Placement) -> bool:
    rank = len(value.shape)
    return isinstance(placement, Shard) and placement.dim % rank == rank - 1


def validate(ob: Obligations) -> list[Violation]:
    """Every violation of static validation, in registry order; empty for a valid contract."""
    found: list[Violation] = []
    for name, rule in CONTRACT_RULES:
        messages = rule(ob)
        if messages:
            found += [Violation(rule=name, message=message) for message in messages]
    return found


def resolve_valid(contract: Contract) -> Obligations:
    """:func:`resolve` and :func:`validate`, raising :class:`ContractRejected` on a violation."""
    ob = resolve(contract)
    violations = validate(ob)
    if violations:
        raise ContractRejected(contract.name, violations)
    return ob
