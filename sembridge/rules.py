"""The checker's rules (§3.3 of the paper), one registry entry for each condition.

A rule looks at the state before an op runs (or, for ``OBSERVATION``, at one surface of a demanded
consumer after the last op; for ``PLAN``, at the plan as a whole) and returns what it finds wrong:
the endpoint and the reason. To add a rule, add one decorated function; the checker, the campaigns
and the documentation run over the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec import Struct

from sembridge.guards import (
    crosses,
    exactly,
    inside,
    issued_by_owner,
    outstanding,
    reassembled,
    registered,
    substitutable,
)
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, AllGather, Broadcast, Plan, Project, Reduce, Send, Tag
from sembridge.state import Holding, State, disjoint_cover, overlaps

Finding = tuple[str | None, str]
"""(endpoint to blame, or None; the reason)."""

OBSERVATION = "observation"
PLAN = "plan"
NOTHING: Sequence[Finding] = ()


class Rule(Struct, frozen=True, kw_only=True):
    """``name`` is what a violation reports; ``on`` an op class, ``OBSERVATION`` or ``PLAN``.

    ``finds`` takes ``(state, op, held)`` with what the op reads (one holding, or a list of them
    in the order of the op's sources or members; None where nothing is held),
    ``(state, consumer, surface, held)`` for ``OBSERVATION``, ``(obligations, plan)`` for ``PLAN``.
    """

    name: str
    on: Any
    finds: Callable[..., Sequence[Finding]]

    @property
    def id(self) -> str:
        """Unique among the rules on one kind: the reported name and the condition's own."""
        return f"{self.name}:{self.finds.__name__.lstrip('_')}"


RULES: list[Rule] = []


def rule(name: str, *on: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a condition for each of ``on``."""

    def register(finds: Callable[..., Any]) -> Callable[..., Any]:
        RULES.extend(Rule(name=name, on=kind, finds=finds) for kind in on)
        return finds

    return register


# Which endpoints an op may name ---------------------------------------------------------------


def _strangers(s: State, *ids: str) -> Sequence[Finding]:
    known = s.ob.domain_of
    return [(x, "no endpoint of the contract") for x in ids if x not in known]


@rule("membership", Send)
def _both_ends_belong_to_the_edge(s: State, op: Send, held: Holding | None) -> Sequence[Finding]:
    known = s.ob.domain_of
    if op.src in known and op.dst in known:
        return NOTHING
    return _strangers(s, op.src, op.dst)


@rule("membership", Project)
def _projecting_endpoint_belongs_to_the_edge(
    s: State, op: Project, held: Holding | None
) -> Sequence[Finding]:
    return NOTHING if op.at in s.ob.domain_of else _strangers(s, op.at)


@rule("membership", Broadcast)
def _receivers_belong_to_the_edge(
    s: State, op: Broadcast, held: Holding | None
) -> Sequence[Finding]:
    return _strangers(s, op.src, *op.dsts) if op.dsts else [(None, "a broadcast to nobody")]


@rule("membership", AllGather)
def _members_belong_to_the_edge(
    s: State, op: AllGather, held: list[Holding | None]
) -> Sequence[Finding]:
    return _strangers(s, *op.members) if op.members else [(None, "an all_gather of nobody")]


@rule("membership", Reduce)
def _sources_and_targets_belong_to_the_edge(
    s: State, op: Reduce, held: list[Holding | None]
) -> Sequence[Finding]:
    if not op.targets:
        return [(None, "a reduction without targets")]
    return _strangers(s, *op.sources, *op.targets)


# What an op reads is there --------------------------------------------------------------------


@rule("availability", Send)
def _sender_holds_what_it_sends(s: State, op: Send, held: Holding | None) -> Sequence[Finding]:
    if held is None:
        return [(op.src, f"sends {op.surface} that it does not hold")]
    part = op.part
    if part is None:
        return NOTHING if held.whole else [(op.src, "sends the whole, holds slices")]
    if part.index >= part.of:
        return [(op.src, f"slice {part.index} of {part.of} does not exist")]
    if not held.covers(s.span(part)):
        return [(op.src, f"lacks slice {part.index} of {part.of}")]
    return NOTHING


@rule("availability", Send)
def _only_the_value_travels_in_slices(
    s: State, op: Send, held: Holding | None
) -> Sequence[Finding]:
    if op.part is None or op.surface == VALUE:
        return NOTHING
    return [(op.src, f"{op.surface} has no slices")]


@rule("availability", Broadcast)
def _root_holds_what_it_broadcasts(
    s: State, op: Broadcast, held: Holding | None
) -> Sequence[Finding]:
    if held is None:
        return [(op.src, f"broadcasts {op.surface} that it does not hold")]
    return NOTHING


@rule("availability", Project)
def _projected_value_is_there(s: State, op: Project, held: Holding | None) -> Sequence[Finding]:
    return [(op.at, "projects a value that it does not hold")] if held is None else NOTHING


@rule("availability", Reduce)
def _every_source_holds_its_value(
    s: State, op: Reduce, held: list[Holding | None]
) -> Sequence[Finding]:
    return [
        (x, "reduces a value that it does not hold whole")
        for x, h in zip(op.sources, held, strict=True)
        if h is None or not h.whole
    ]


@rule("availability", AllGather)
def _every_member_holds_slices(
    s: State, op: AllGather, held: list[Holding | None]
) -> Sequence[Finding]:
    return [
        (x, f"gathers {op.surface} that it holds nothing of")
        for x, h in zip(op.members, held, strict=True)
        if h is None
    ]


@rule("availability", AllGather)
def _slices_make_up_the_whole(
    s: State, op: AllGather, held: list[Holding | None]
) -> Sequence[Finding]:
    if disjoint_cover([h for h in held if h is not None], s.ob.elements):
        return NOTHING
    return [(None, "the members' slices overlap or do not make up the whole")]


# Native operations stay in one domain, sends leave it ------------------------------------------


@rule("locality", Send)
def _send_crosses_domains(s: State, op: Send, held: Holding | None) -> Sequence[Finding]:
    domain_of = s.ob.domain_of
    if crosses(domain_of[op.src], domain_of[op.dst]):
        return NOTHING
    return [(op.dst, f"a send inside domain {domain_of[op.src]!r}")]


def _outsiders(s: State, home: str, others: Iterable[str]) -> Sequence[Finding]:
    domain_of = s.ob.domain_of
    return [
        (x, f"a native collective of domain {home!r} reaches into {domain_of[x]!r}")
        for x in others
        if not inside(domain_of[x], home)
    ]


@rule("locality", Broadcast)
def _broadcast_stays_inside(s: State, op: Broadcast, held: Holding | None) -> Sequence[Finding]:
    return _outsiders(s, s.ob.domain_of[op.src], op.dsts)


@rule("locality", AllGather)
def _gather_stays_inside(s: State, op: AllGather, held: list[Holding | None]) -> Sequence[Finding]:
    return _outsiders(s, s.ob.domain_of[op.members[0]], op.members)


@rule("locality", Reduce)
def _reduce_stays_inside(s: State, op: Reduce, held: list[Holding | None]) -> Sequence[Finding]:
    return _outsiders(s, s.ob.domain_of[op.targets[0]], op.sources + op.targets)


# Reductions and projections --------------------------------------------------------------------


@rule("reduction", Reduce)
def _reduction_is_outstanding(
    s: State, op: Reduce, held: list[Holding | None]
) -> Sequence[Finding]:
    return [(None, "nothing is to be reduced")] if s.ob.reduced is None else NOTHING


@rule("reduction", Reduce)
def _operator_is_registered(s: State, op: Reduce, held: list[Holding | None]) -> Sequence[Finding]:
    if s.ob.reduced is None or registered(op.operator, s.ob.operator):
        return NOTHING
    return [(None, f"operator {op.operator!r}, registered is {s.ob.operator!r}")]


@rule("reduction", Reduce)
def _sources_are_registered(s: State, op: Reduce, held: list[Holding | None]) -> Sequence[Finding]:
    reduced = s.ob.reduced
    if reduced is None:
        return NOTHING
    if exactly(frozenset(op.sources), reduced) and len(op.sources) == len(reduced):
        return NOTHING
    return [(None, "the sources are not exactly the registered ones")]


@rule("reduction", Reduce)
def _sources_are_incomplete(s: State, op: Reduce, held: list[Holding | None]) -> Sequence[Finding]:
    return [
        (x, "reduces a value that is complete already")
        for x, h in zip(op.sources, held, strict=True)
        if h is not None and not outstanding(h.complete)
    ]


@rule("completion", Project)
def _projection_follows_completion(
    s: State, op: Project, held: Holding | None
) -> Sequence[Finding]:
    return NOTHING if held is None or held.complete else [(op.at, "projects a partial")]


@rule("projection", Project)
def _projection_is_registered(s: State, op: Project, held: Holding | None) -> Sequence[Finding]:
    projected = s.ob.projected
    if projected is None:
        return [(op.at, f"the contract registers no projection, not {op.projection!r}")]
    if registered(op.projection, projected.name):
        return NOTHING
    return [(op.at, f"projection {op.projection!r}, registered is {projected.name!r}")]


@rule("projection", Project)
def _projection_reads_the_whole(s: State, op: Project, held: Holding | None) -> Sequence[Finding]:
    return NOTHING if held is None or held.whole else [(op.at, "projects a slice")]


# Nothing is delivered twice --------------------------------------------------------------------


@rule("redelivery", Send)
def _receiver_lacks_what_is_sent(s: State, op: Send, held: Holding | None) -> Sequence[Finding]:
    there = s.held[op.surface][op.dst]
    if there is None or not overlaps(there, s.span(op.part)):
        return NOTHING
    return [(op.dst, f"has {op.surface} already")]


@rule("redelivery", Broadcast)
def _receivers_lack_what_is_broadcast(
    s: State, op: Broadcast, held: Holding | None
) -> Sequence[Finding]:
    if held is None:
        return NOTHING
    at = s.held[op.surface]
    found = [
        (x, f"has {op.surface} already")
        for x in op.dsts
        if (there := at[x]) is not None and any(overlaps(there, span) for span in held.spans)
    ]
    return found + _repeated(op.dsts, op.surface)


def _repeated(ids: Sequence[str], surface: str) -> list[Finding]:
    if len(set(ids)) == len(ids):
        return []
    seen = set[str]()
    return [(x, f"is given {surface} twice") for x in ids if x in seen or seen.add(x)]


@rule("redelivery", Project)
def _result_is_not_there_yet(s: State, op: Project, held: Holding | None) -> Sequence[Finding]:
    output = s.output_of(op.projection)
    return NOTHING if s.held[output][op.at] is None else [(op.at, f"has {output} already")]


@rule("redelivery", Reduce)
def _targets_lack_the_result(s: State, op: Reduce, held: list[Holding | None]) -> Sequence[Finding]:
    at = s.held[VALUE]
    found = [
        (x, "has the completed value already")
        for x in op.targets
        if (there := at[x]) is not None and there.complete
    ]
    return found + _repeated(op.targets, VALUE)


# What each demanded consumer observes ----------------------------------------------------------


@rule("coverage", OBSERVATION)
def _consumer_received_all_of_it(
    s: State, c: str, surface: str, held: Holding | None
) -> Sequence[Finding]:
    if held is None:
        return NOTHING if s.holds_anything(c) else [(c, f"never receives {surface}")]
    return NOTHING if held.whole else [(c, f"holds slices of {surface}, not the whole")]


@rule("surface", OBSERVATION)
def _consumer_holds_the_surface_asked_for(
    s: State, c: str, surface: str, held: Holding | None
) -> Sequence[Finding]:
    if held is None and s.holds_anything(c):
        return [(c, f"holds something, but no {surface}")]
    return NOTHING


@rule("completion", OBSERVATION)
def _consumer_holds_a_completed_value(
    s: State, c: str, surface: str, held: Holding | None
) -> Sequence[Finding]:
    return NOTHING if held is None or held.complete else [(c, f"observes {surface} of a partial")]


@rule("authority", OBSERVATION)
def _decision_comes_from_its_owner(
    s: State, c: str, surface: str, held: Holding | None
) -> Sequence[Finding]:
    ob = s.ob
    if (
        held is None
        or ob.owners is None
        or issued_by_owner(held.issuers, held.sources, ob.owners, ob.reduced is not None)
    ):
        return NOTHING
    return [(c, f"{surface} issued by {_names(held.issuers)}, owned by {_names(ob.owners)}")]


@rule("provenance", OBSERVATION)
def _completed_value_has_every_source(
    s: State, c: str, surface: str, held: Holding | None
) -> Sequence[Finding]:
    reduced = s.ob.reduced
    # Identity first: comparing equal sets is linear in them, and many consumers share one.
    if held is None or reduced is None or held.sources is reduced or exactly(held.sources, reduced):
        return NOTHING
    return [(c, f"{surface} derives from {_names(held.sources)} alone")]


def _foreign(s: State, c: str, held: Holding | None) -> bool:
    """Whether neither lineage nor reassembly admits the sources of a copy at ``c``."""
    ob = s.ob
    if held is None or ob.owners is not None or ob.reduced is not None:
        return False
    sources = held.sources
    return not (
        reassembled(ob.replicate, len(sources) > 1)
        or substitutable(sources, ob.members(ob.mapped[c]))
    )


@rule("substitution", OBSERVATION)
def _stand_in_has_lineage(
    s: State, c: str, surface: str, held: Holding | None
) -> Sequence[Finding]:
    if not s.ob.replicate or held is None or not _foreign(s, c, held):
        return NOTHING
    mapped = s.ob.mapped[c]
    return [(c, f"{surface} of {_names(held.sources)} stands in for {mapped!r} without lineage")]


@rule("provenance", OBSERVATION)
def _value_comes_from_the_mapped_producer(
    s: State, c: str, surface: str, held: Holding | None
) -> Sequence[Finding]:
    if s.ob.replicate or held is None or not _foreign(s, c, held):
        return NOTHING
    return [(c, f"{surface} of {_names(held.sources)}, mapped is {s.ob.mapped[c]!r}")]


# The plan as a whole ---------------------------------------------------------------------------


@rule("identity", PLAN)
def _plan_names_its_contract(ob: Obligations, plan: Plan) -> Sequence[Finding]:
    if plan.contract == ob.contract.name:
        return NOTHING
    return [(None, f"made for contract {plan.contract!r}, not {ob.contract.name!r}")]


@rule("identity", PLAN)
def _plan_carries_the_contracts_tag(ob: Obligations, plan: Plan) -> Sequence[Finding]:
    if plan.tag == ob.contract.tag:
        return NOTHING
    return [(None, f"made for {_tag(plan.tag)}, the contract is {_tag(ob.contract.tag)}")]


def _names(ids: AbstractSet[str]) -> str:
    shown = sorted(ids)[:4]
    return "{" + ", ".join(shown) + (", ..." if len(ids) > len(shown) else "") + "}"


def _tag(tag: Tag | None) -> str:
    if tag is None:
        return "no tag"
    return f"⟨{tag.request}, {tag.token}, {tag.microbatch}, {tag.epoch}⟩"
