"""The plan semantics and the checker's rules (§3.3): what each op reads, requires and does.

One function for each op, one for a demanded consumer's observation and one for the plan as a
whole. Every condition in them belongs to a rule that is declared right above, and a violation
names the rule, the endpoint and the reason; conditions go through :mod:`sembridge.guards`, which
the soundness theorem reads as well. To add a rule, declare it and test it where it applies: the
checker, the campaigns and the documentation run over ``RULES``.

After a violation of ``membership`` or ``availability`` an op has no effect, since what it would
deliver does not exist; after any other it has, so that later violations are real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec import Struct

from sembridge.guards import (
    crosses,
    exactly,
    issued_by_owner,
    outstanding,
    reassembled,
    registered,
    substitutable,
)
from sembridge.plan import VALUE, AllGather, Broadcast, Plan, Project, Reduce, Send, Tag
from sembridge.state import NO_ELEMENTS, Holding, State, disjoint_cover, overlaps
from sembridge.surfaces import PARAMETERS

OBSERVATION = "observation"
PLAN = "plan"


class Rule(Struct, frozen=True, kw_only=True):
    """``name`` is what a violation reports; ``on`` an op class, ``OBSERVATION`` or ``PLAN``."""

    name: str
    on: Any
    says: str

    @property
    def id(self) -> str:
        """Unique among all rules."""
        on = self.on if isinstance(self.on, str) else self.on.__name__.lower()
        return f"{self.name}/{on}: {self.says}"


RULES: list[Rule] = []


def _rule(name: str, on: Any, says: str) -> Rule:
    declared = Rule(name=name, on=on, says=says)
    RULES.append(declared)
    return declared


# send ------------------------------------------------------------------------------------------

SEND_ENDS = _rule("membership", Send, "both ends are endpoints of the contract")
SENDER_HOLDS = _rule("availability", Send, "the sender holds what it sends")
ONLY_VALUE_IN_SLICES = _rule("availability", Send, "only the value travels in slices")
SEND_CROSSES = _rule("locality", Send, "a send leaves its domain")
SEND_ONCE = _rule("redelivery", Send, "the receiver lacks what it is sent")


def send(s: State, op: Send) -> None:
    """Read the source; the destination holds the slice, or the whole."""
    domain_of, src, dst, surface = s.domain_of, op.src, op.dst, op.surface
    if src not in domain_of or dst not in domain_of:
        return s.strangers(SEND_ENDS, src, dst)
    at = s.copies(surface)
    held, there, span = at.get(src) or s.own(at, src), at.get(dst), None
    if there is None and dst in s.producers:
        there = s.own(at, dst)
    if held is None:
        return s.fail(SENDER_HOLDS, src, f"sends {surface} that it does not hold")
    if op.part is not None:
        if surface != VALUE:
            return s.fail(ONLY_VALUE_IN_SLICES, src, f"{surface} has no slices")
        span = s.span(op.part)
        if op.part.index >= op.part.of or not held.covers(span):
            return s.fail(SENDER_HOLDS, src, f"lacks slice {op.part.index} of {op.part.of}")
    elif not held.whole:
        return s.fail(SENDER_HOLDS, src, "sends the whole, holds slices")
    if not crosses(domain_of[src], domain_of[dst]):
        s.fail(SEND_CROSSES, dst, f"a send inside domain {domain_of[src]!r}")
    if there is not None and overlaps(there, span):
        s.fail(SEND_ONCE, dst, f"has {surface} already")
    if there is None and span is None:
        at[dst] = held
    else:
        s.deliver(dst, surface, span, held)
    return None


# broadcast -------------------------------------------------------------------------------------

BROADCAST_ENDS = _rule(
    "membership", Broadcast, "root and receivers are endpoints, and there are some"
)
ROOT_HOLDS = _rule("availability", Broadcast, "the root holds what it broadcasts")
BROADCAST_INSIDE = _rule("locality", Broadcast, "a native broadcast stays in one domain")
BROADCAST_ONCE = _rule("redelivery", Broadcast, "the receivers lack what is broadcast")


def broadcast(s: State, op: Broadcast) -> None:
    """Read the root; each receiver holds what the root holds."""
    domain_of, src, dsts, surface = s.domain_of, op.src, op.dsts, op.surface
    receivers = dict.fromkeys(dsts)
    if src not in domain_of or not dsts or not domain_of.keys() >= receivers.keys():
        return s.strangers(BROADCAST_ENDS, src, *dsts)
    at = s.copies(surface)
    held = at.get(src) or s.own(at, src)
    if held is None:
        return s.fail(ROOT_HOLDS, src, f"broadcasts {surface} that it does not hold")
    s.one_domain(BROADCAST_INSIDE, domain_of[src], dsts)
    if held.whole and at.keys().isdisjoint(dsts) and s.producers.isdisjoint(dsts):
        if len(receivers) < len(dsts):
            s.twice(BROADCAST_ONCE, dsts, surface)
        at.update(dict.fromkeys(dsts, held))
        return None
    for dst in dsts:
        there = at.get(dst) or s.own(at, dst)
        if there is not None and any(overlaps(there, span) for span in held.spans or NO_ELEMENTS):
            s.fail(BROADCAST_ONCE, dst, f"has {surface} already")
        s.deliver(dst, surface, None, held)
    return None


# project ---------------------------------------------------------------------------------------

PROJECT_AT = _rule("membership", Project, "the endpoint is one of the contract's")
PROJECT_READS = _rule("availability", Project, "the value to project is there")
PROJECT_TAKES = _rule("availability", Project, "the projection's parameters are there")
PROJECT_COMPLETE = _rule("completion", Project, "projection follows completion")
PROJECT_REGISTERED = _rule("projection", Project, "the projection is the registered one")
PROJECT_WHOLE = _rule("projection", Project, "a projection reads the whole value")
PROJECT_ONCE = _rule("redelivery", Project, "the result is not there yet")


def project(s: State, op: Project) -> None:
    """Read the value at one endpoint; it holds the output surface as well.

    Of a projection of shards the output is incomplete until its combine has run.
    """
    x, projected = op.at, s.ob.projected
    if x not in s.domain_of:
        return s.strangers(PROJECT_AT, x)
    held = s.values.get(x) or s.own(s.values, x)
    if held is None:
        return s.fail(PROJECT_READS, x, "projects a value that it does not hold")
    if projected is not None and projected.choices and x not in s.copies(PARAMETERS):
        return s.fail(PROJECT_TAKES, x, "projects without the projection's parameters")
    if not held.complete:
        s.fail(PROJECT_COMPLETE, x, "projects a partial")
    if not held.whole:
        s.fail(PROJECT_WHOLE, x, "projects a slice")
    if projected is not None and registered(op.projection, projected.name):
        output = projected.output
    else:
        output = f"{op.projection}()"
        s.fail(PROJECT_REGISTERED, x, f"projection {op.projection!r} is not registered here")
    at = s.copies(output)
    if x in at:
        return s.fail(PROJECT_ONCE, x, f"has {output} already")
    combined = projected is not None and projected.combine is not None
    at[x] = Holding(False, held.sources, held.issuers) if combined else held
    return None


# reduce ----------------------------------------------------------------------------------------

REDUCE_ENDS = _rule("membership", Reduce, "sources and targets are endpoints, and there are some")
REDUCE_READS = _rule("availability", Reduce, "every source holds its value whole")
REDUCE_INSIDE = _rule("locality", Reduce, "a native reduction stays in one domain")
REDUCE_OUTSTANDING = _rule("reduction", Reduce, "a reduction is outstanding")
REDUCE_OPERATOR = _rule("reduction", Reduce, "the operator is the registered one")
REDUCE_SOURCES = _rule("reduction", Reduce, "the sources are exactly the registered ones")
REDUCE_INCOMPLETE = _rule("reduction", Reduce, "no source is complete already")
REDUCE_ONCE = _rule("redelivery", Reduce, "the targets lack the completed value")


def reduce(s: State, op: Reduce) -> None:
    """Read every source's copy; each target holds the completed whole, issued by itself."""
    ob, sources, targets, surface = s.ob, op.sources, op.targets, op.surface
    if not targets or not s.domain_of.keys() >= {*sources, *targets}:
        return s.strangers(REDUCE_ENDS, *sources, *targets)
    at = s.copies(surface)
    held = [at.get(x) or s.own(at, x) for x in sources]
    missing = [x for x, h in zip(sources, held, strict=True) if h is None or not h.whole]
    for x in missing:
        s.fail(REDUCE_READS, x, f"reduces a {surface} that it does not hold whole")
    if missing:
        return None
    s.one_domain(REDUCE_INSIDE, s.domain_of[targets[0]], sources + targets)
    if ob.reduced is None or not registered(surface, ob.completes):
        s.fail(REDUCE_OUTSTANDING, None, f"no {surface} is to be reduced")
    else:
        if not registered(op.operator, ob.operator):
            s.fail(REDUCE_OPERATOR, None, f"{op.operator!r}, registered is {ob.operator!r}")
        if not exactly(frozenset(sources), ob.reduced) or len(sources) != len(ob.reduced):
            s.fail(REDUCE_SOURCES, None, "the sources are not exactly the registered ones")
    for x, h in zip(sources, held, strict=True):
        if h is not None and not outstanding(h.complete):
            s.fail(REDUCE_INCOMPLETE, x, f"reduces a {surface} that is complete already")
    for x in targets:
        there = at.get(x) or s.own(at, x)
        if there is not None and there.complete:
            s.fail(REDUCE_ONCE, x, f"has the completed {surface} already")
    s.twice(REDUCE_ONCE, targets, surface)
    united = s.interned(frozenset[str]().union(*[h.sources for h in held if h is not None]))
    for x in targets:
        at[x] = Holding(True, united, frozenset((x,)))
    return None


# all_gather ------------------------------------------------------------------------------------

GATHER_ENDS = _rule("membership", AllGather, "the members are endpoints, and there are some")
GATHER_READS = _rule("availability", AllGather, "every member holds slices")
GATHER_WHOLE = _rule("availability", AllGather, "the slices are disjoint and make up the whole")
GATHER_INSIDE = _rule("locality", AllGather, "a native all_gather stays in one domain")


def all_gather(s: State, op: AllGather) -> None:
    """Read every member's slices; each holds the whole, sources and issuers united."""
    members, at = op.members, s.copies(op.surface)
    if not members or not s.domain_of.keys() >= set(members):
        return s.strangers(GATHER_ENDS, *members)
    held = [h for x in members if (h := at.get(x) or s.own(at, x)) is not None]
    s.one_domain(GATHER_INSIDE, s.domain_of[members[0]], members)
    for x in members if len(held) < len(members) else ():
        if x not in at:
            s.fail(GATHER_READS, x, f"gathers {op.surface} that it holds nothing of")
    if not disjoint_cover(held, s.ob.elements):
        s.fail(GATHER_WHOLE, None, "the members' slices overlap or do not make up the whole")
        return None
    # A member without elements brings nothing that could be incomplete.
    whole = Holding(
        all(h.complete for h in held if h.spans),
        s.interned(frozenset[str]().union(*[h.sources for h in held])),
        frozenset[str]().union(*[h.issuers for h in held]),
    )
    if len(held) == len(members):
        at.update(dict.fromkeys(members, whole))
    return None


# what a demanded consumer observes -------------------------------------------------------------

COVERED = _rule("coverage", OBSERVATION, "the consumer received all of it")
SURFACED = _rule("surface", OBSERVATION, "the consumer holds the surface asked for")
COMPLETED = _rule("completion", OBSERVATION, "the observed value is complete")
OWNED = _rule("authority", OBSERVATION, "a decision is issued by its owner")
ALL_SOURCES = _rule("provenance", OBSERVATION, "a completed value has exactly R's sources")
LINEAGE = _rule("substitution", OBSERVATION, "a stand-in has lineage")
MAPPED = _rule("provenance", OBSERVATION, "the value is the mapped producer's, or its class's")


def observe(s: State, c: str, surface: str, held: Holding | None) -> None:
    """Judge one surface of one demanded consumer (equation 4)."""
    ob = s.ob
    if held is None:
        if s.holds_anything(c):
            return s.fail(SURFACED, c, f"holds something, but no {surface}")
        return s.fail(COVERED, c, f"never receives {surface}")
    sources, owners, reduced = held.sources, ob.owners, ob.reduced
    if not held.whole:
        s.fail(COVERED, c, f"holds slices of {surface}, not the whole")
    if not held.complete:
        s.fail(COMPLETED, c, f"observes {surface} of a partial")
    if owners is not None and not issued_by_owner(
        held.issuers, sources, owners, reduced is not None
    ):
        s.fail(OWNED, c, f"{surface} issued by {_names(held.issuers)}, not by {_names(owners)}")
    if reduced is not None:
        # Identity first: comparing equal sets is linear, and many consumers share one.
        if sources is not reduced and not exactly(sources, reduced):
            s.fail(ALL_SOURCES, c, f"{surface} derives from {_names(sources)} alone")
    elif (
        owners is None
        and not reassembled(ob.replicate, len(sources) > 1)
        and not substitutable(sources, ob.members(ob.mapped[c]))
    ):
        of, mapped = _names(sources), ob.mapped[c]
        if ob.replicate:
            s.fail(LINEAGE, c, f"{surface} of {of} stands in for {mapped!r} without lineage")
        else:
            s.fail(MAPPED, c, f"{surface} of {of}, mapped is {mapped!r}")
    return None


# the plan as a whole ---------------------------------------------------------------------------

NAMED = _rule("identity", PLAN, "the plan names its contract")
TAGGED = _rule("identity", PLAN, "the plan carries the contract's tag")


def identify(s: State, plan: Plan) -> None:
    """Whether the plan was made for this contract and this incarnation of it."""
    contract = s.ob.contract
    if plan.contract != contract.name:
        s.fail(NAMED, None, f"made for contract {plan.contract!r}, not {contract.name!r}")
    if plan.tag != contract.tag:
        s.fail(TAGGED, None, f"made for {_tag(plan.tag)}, the contract is {_tag(contract.tag)}")


SEMANTICS: dict[type, Any] = {
    Send: send,
    Broadcast: broadcast,
    Project: project,
    Reduce: reduce,
    AllGather: all_gather,
}
"""Each op's function of the state; to add an op, add one entry."""


def _names(ids: AbstractSet[str]) -> str:
    shown: Sequence[str] = sorted(ids)[:4]
    return "{" + ", ".join(shown) + (", ..." if len(ids) > len(shown) else "") + "}"


def _tag(tag: Tag | None) -> str:
    if tag is None:
        return "no tag"
    return f"⟨{tag.request}, {tag.token}, {tag.microbatch}, {tag.epoch}⟩"
