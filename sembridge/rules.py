"""The checker's rules (§3.3 of the paper), one registry entry for each condition.

A rule looks at the state before an op runs (or, for ``OBSERVATION``, at a demanded consumer after
the last op; for ``PLAN``, at the plan as a whole) and yields what it finds wrong: the endpoint
and the reason. To add a rule, add one decorated function; the checker, the campaigns and the
documentation run over the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sembridge import guards
from sembridge.plan import (
    VALUE,
    AllGather,
    Broadcast,
    Plan,
    Project,
    Reduce,
    Send,
    endpoints_of,
)
from sembridge.state import State, disjoint_cover, overlaps

if TYPE_CHECKING:
    from sembridge.obligations import Obligations

Finding = tuple[str | None, str]
"""(endpoint to blame, or None; the reason)."""

OBSERVATION = "observation"
PLAN = "plan"


class Rule(Struct, frozen=True, kw_only=True):
    """``name`` is what a violation reports; ``on`` an op class, ``OBSERVATION`` or ``PLAN``."""

    name: str
    on: Any
    finds: Callable[..., Sequence[Finding] | Iterable[Finding]]

    @property
    def id(self) -> str:
        """Unique among rules: the reported name and the condition's own."""
        return f"{self.name}:{self.finds.__name__.lstrip('_')}"


RULES: list[Rule] = []
FOUND_NOTHING: tuple[Finding, ...] = ()


def rule(name: str, *on: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a condition for each of ``on``; it returns or yields findings."""

    def register(finds: Callable[..., Any]) -> Callable[..., Any]:
        RULES.extend(Rule(name=name, on=kind, finds=finds) for kind in on)
        return finds

    return register


# Which endpoints an op may name ---------------------------------------------------------------


@rule("membership", Reduce, Project, Send, Broadcast, AllGather)
def _endpoints_belong_to_the_edge(s: State, op: Any) -> Sequence[Finding]:
    known = s.ob.domain_of
    return [(x, "no endpoint of the contract") for x in endpoints_of(op) if x not in known]


@rule("membership", Reduce)
def _reduce_has_targets(s: State, op: Reduce) -> Sequence[Finding]:
    return FOUND_NOTHING if op.targets else [(None, "a reduction without targets")]


@rule("membership", Broadcast)
def _broadcast_has_receivers(s: State, op: Broadcast) -> Sequence[Finding]:
    return FOUND_NOTHING if op.dsts else [(None, "a broadcast to nobody")]


@rule("membership", AllGather)
def _gather_has_members(s: State, op: AllGather) -> Sequence[Finding]:
    return FOUND_NOTHING if op.members else [(None, "an all_gather of nobody")]


# What an op reads is there --------------------------------------------------------------------


@rule("availability", Send)
def _sender_holds_what_it_sends(s: State, op: Send) -> Sequence[Finding]:
    held = s.holding(op.src, op.surface)
    if held is None:
        return [(op.src, f"sends {op.surface} that it does not hold")]
    if op.part is None:
        return FOUND_NOTHING if held.whole else [(op.src, "sends the whole, holds slices")]
    if op.part.index >= op.part.of:
        return [(op.src, f"slice {op.part.index} of {op.part.of} does not exist")]
    if not held.covers(s.span(op.part)):
        return [(op.src, f"lacks slice {op.part.index} of {op.part.of}")]
    return FOUND_NOTHING


@rule("availability", Send)
def _only_the_value_travels_in_slices(s: State, op: Send) -> Sequence[Finding]:
    if op.part is None or op.surface == VALUE:
        return FOUND_NOTHING
    return [(op.src, f"{op.surface} has no slices")]


@rule("availability", Broadcast)
def _root_holds_what_it_broadcasts(s: State, op: Broadcast) -> Sequence[Finding]:
    if s.holding(op.src, op.surface) is None:
        return [(op.src, f"broadcasts {op.surface} that it does not hold")]
    return FOUND_NOTHING


@rule("availability", Project)
def _projected_value_is_there(s: State, op: Project) -> Sequence[Finding]:
    if s.holding(op.at, VALUE) is None:
        return [(op.at, "projects a value that it does not hold")]
    return FOUND_NOTHING


@rule("availability", Reduce)
def _every_source_holds_its_value(s: State, op: Reduce) -> Sequence[Finding]:
    found: list[Finding] = []
    for x in op.sources:
        held = s.holding(x, VALUE)
        if held is None or not held.whole:
            found.append((x, "reduces a value that it does not hold whole"))
    return found


@rule("availability", AllGather)
def _every_member_holds_slices(s: State, op: AllGather) -> Sequence[Finding]:
    return [
        (x, f"gathers {op.surface} that it holds nothing of")
        for x in op.members
        if s.holding(x, op.surface) is None
    ]


@rule("availability", AllGather)
def _slices_make_up_the_whole(s: State, op: AllGather) -> Sequence[Finding]:
    held = [h for x in op.members if (h := s.holding(x, op.surface)) is not None]
    if disjoint_cover(held, s.ob.elements):
        return FOUND_NOTHING
    return [(None, "the members' slices overlap or do not make up the whole")]


# Native operations stay in one domain, sends leave it ------------------------------------------


@rule("locality", Send)
def _send_crosses_domains(s: State, op: Send) -> Sequence[Finding]:
    domain_of = s.ob.domain_of
    if guards.crosses(domain_of[op.src], domain_of[op.dst]):
        return FOUND_NOTHING
    return [(op.dst, f"a send inside domain {domain_of[op.src]!r}")]


def _strangers(s: State, root: str, others: Iterable[str]) -> list[Finding]:
    domain_of = s.ob.domain_of
    home = domain_of[root]
    return [
        (x, f"a native collective of domain {home!r} reaches into {domain_of[x]!r}")
        for x in others
        if not guards.inside(domain_of[x], home)
    ]


@rule("locality", Broadcast)
def _broadcast_stays_inside(s: State, op: Broadcast) -> Sequence[Finding]:
    return _strangers(s, op.src, op.dsts)


@rule("locality", AllGather)
def _gather_stays_inside(s: State, op: AllGather) -> Sequence[Finding]:
    return _strangers(s, op.members[0], op.members)


@rule("locality", Reduce)
def _reduce_stays_inside(s: State, op: Reduce) -> Sequence[Finding]:
    return _strangers(s, op.targets[0], op.sources + op.targets)


# Reductions and projections --------------------------------------------------------------------


@rule("reduction", Reduce)
def _reduction_is_outstanding(s: State, op: Reduce) -> Sequence[Finding]:
    return FOUND_NOTHING if s.ob.reduced is not None else [(None, "nothing is to be reduced")]


@rule("reduction", Reduce)
def _operator_is_registered(s: State, op: Reduce) -> Sequence[Finding]:
    if s.ob.reduced is None or guards.registered(op.operator, s.ob.operator):
        return FOUND_NOTHING
    return [(None, f"operator {op.operator!r}, registered is {s.ob.operator!r}")]


@rule("reduction", Reduce)
def _sources_are_registered(s: State, op: Reduce) -> Sequence[Finding]:
    reduced = s.ob.reduced
    if reduced is None:
        return FOUND_NOTHING
    if guards.exactly(frozenset(op.sources), reduced) and len(op.sources) == len(reduced):
        return FOUND_NOTHING
    return [(None, "the sources are not exactly the registered ones")]


@rule("reduction", Reduce)
def _sources_are_incomplete(s: State, op: Reduce) -> Sequence[Finding]:
    return [
        (x, "reduces a value that is complete already")
        for x in op.sources
        if (h := s.holding(x, VALUE)) is not None and not guards.outstanding(h.complete)
    ]


@rule("completion", Project)
def _projection_follows_completion(s: State, op: Project) -> Sequence[Finding]:
    held = s.holding(op.at, VALUE)
    if held is None or held.complete:
        return FOUND_NOTHING
    return [(op.at, "projects a partial")]


@rule("projection", Project)
def _projection_is_registered(s: State, op: Project) -> Sequence[Finding]:
    projected = s.ob.projected
    if projected is None:
        return [(op.at, f"the contract registers no projection, not {op.projection!r}")]
    if guards.registered(op.projection, projected.name):
        return FOUND_NOTHING
    return [(op.at, f"projection {op.projection!r}, registered is {projected.name!r}")]


@rule("projection", Project)
def _projection_reads_the_whole(s: State, op: Project) -> Sequence[Finding]:
    held = s.holding(op.at, VALUE)
    if held is None or held.whole:
        return FOUND_NOTHING
    return [(op.at, "projects a slice")]


# Nothing is delivered twice --------------------------------------------------------------------


@rule("redelivery", Send)
def _receiver_lacks_what_is_sent(s: State, op: Send) -> Sequence[Finding]:
    held = s.holding(op.dst, op.surface)
    if held is None or not overlaps(held, s.span(op.part)):
        return FOUND_NOTHING
    return [(op.dst, f"has {op.surface} already")]


@rule("redelivery", Broadcast)
def _receivers_lack_what_is_broadcast(s: State, op: Broadcast) -> Sequence[Finding]:
    sent = s.holding(op.src, op.surface)
    if sent is None:
        return FOUND_NOTHING
    at, found, seen = s.at(op.surface), list[Finding](), set[str]()
    for x in op.dsts:
        held = at.get(x) or s.holding(x, op.surface)
        if x in seen or (held is not None and any(overlaps(held, span) for span in sent.spans)):
            found.append((x, f"has {op.surface} already"))
        seen.add(x)
    return found


@rule("redelivery", Project)
def _result_is_not_there_yet(s: State, op: Project) -> Sequence[Finding]:
    output = s.output_of(op.projection)
    if s.holding(op.at, output) is None:
        return FOUND_NOTHING
    return [(op.at, f"has {output} already")]


@rule("redelivery", Reduce)
def _targets_lack_the_result(s: State, op: Reduce) -> Sequence[Finding]:
    found, seen = list[Finding](), set[str]()
    for x in op.targets:
        held = s.holding(x, VALUE)
        if x in seen or (held is not None and held.complete):
            found.append((x, "has the completed value already"))
        seen.add(x)
    return found


# What each demanded consumer observes ----------------------------------------------------------


@rule("coverage", OBSERVATION)
def _consumer_received_all_of_it(s: State, c: str) -> Iterable[Finding]:
    for surface in s.ob.observed:
        held = s.holding(c, surface)
        if held is not None and not held.whole:
            yield c, f"holds slices of {surface}, not the whole"
        elif held is None and not s.holds_anything(c):
            yield c, f"never receives {surface}"


@rule("surface", OBSERVATION)
def _consumer_holds_the_surface_asked_for(s: State, c: str) -> Iterable[Finding]:
    for surface in s.ob.observed:
        if s.holding(c, surface) is None and s.holds_anything(c):
            yield c, f"holds something, but no {surface}"


@rule("completion", OBSERVATION)
def _consumer_holds_a_completed_value(s: State, c: str) -> Iterable[Finding]:
    for surface in s.ob.observed:
        held = s.holding(c, surface)
        if held is not None and not held.complete:
            yield c, f"observes {surface} of a partial"


@rule("authority", OBSERVATION)
def _decision_comes_from_its_owner(s: State, c: str) -> Iterable[Finding]:
    ob = s.ob
    if ob.owners is None:
        return
    for surface in ob.observed:
        held = s.holding(c, surface)
        if held is not None and not guards.issued_by_owner(
            held.issuers, held.sources, ob.owners, ob.reduced is not None
        ):
            yield c, f"{surface} issued by {_names(held.issuers)}, owned by {_names(ob.owners)}"


@rule("provenance", OBSERVATION)
def _completed_value_has_every_source(s: State, c: str) -> Iterable[Finding]:
    ob = s.ob
    if ob.reduced is None:
        return
    for surface in ob.observed:
        held = s.holding(c, surface)
        if (
            held is not None
            and held.sources is not ob.reduced
            and not guards.exactly(held.sources, ob.reduced)
        ):
            yield c, f"{surface} derives from {_names(held.sources)} alone"


def _foreign(s: State, c: str) -> Iterable[tuple[str, AbstractSet[str]]]:
    """Surfaces at ``c`` whose sources neither lineage nor reassembly admits."""
    ob = s.ob
    if ob.owners is not None or ob.reduced is not None:
        return
    mapped = ob.mapped[c]
    for surface in ob.observed:
        held = s.holding(c, surface)
        if held is None:
            continue
        sources = held.sources
        if not guards.reassembled(ob.replicate, len(sources) > 1) and not guards.substitutable(
            sources, ob.members(mapped)
        ):
            yield surface, sources


@rule("substitution", OBSERVATION)
def _stand_in_has_lineage(s: State, c: str) -> Iterable[Finding]:
    if s.ob.replicate:
        for surface, sources in _foreign(s, c):
            mapped = s.ob.mapped[c]
            yield c, f"{surface} of {_names(sources)} stands in for {mapped!r} without lineage"


@rule("provenance", OBSERVATION)
def _value_comes_from_the_mapped_producer(s: State, c: str) -> Iterable[Finding]:
    if not s.ob.replicate:
        for surface, sources in _foreign(s, c):
            yield c, f"{surface} of {_names(sources)}, mapped is {s.ob.mapped[c]!r}"


# The plan as a whole ---------------------------------------------------------------------------


@rule("identity", PLAN)
def _plan_names_its_contract(ob: Obligations, plan: Plan) -> Iterable[Finding]:
    if plan.contract != ob.contract.name:
        yield None, f"made for contract {plan.contract!r}, not {ob.contract.name!r}"


@rule("identity", PLAN)
def _plan_carries_the_contracts_tag(ob: Obligations, plan: Plan) -> Iterable[Finding]:
    if plan.tag != ob.contract.tag:
        yield None, f"made for {_tag(plan)}, the contract is {_tag(ob.contract)}"


def _names(ids: AbstractSet[str]) -> str:
    shown = sorted(ids)[:4]
    return "{" + ", ".join(shown) + (", ..." if len(ids) > len(shown) else "") + "}"


def _tag(of: Any) -> str:
    tag = of.tag
    if tag is None:
        return "no tag"
    return f"⟨{tag.request}, {tag.token}, {tag.microbatch}, {tag.epoch}⟩"
