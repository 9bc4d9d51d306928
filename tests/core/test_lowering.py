"""Algorithm 1, line by line, and the plans that the paper names."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from sembridge import io, lowering
from sembridge.check import check
from sembridge.contract import (
    NO_EVIDENCE,
    NO_GRAPH,
    NO_RUNTIME,
    BoundaryEdge,
    Domain,
    Lane,
    Producer,
)
from sembridge.errors import PlanRejected
from sembridge.footprint import Footprint
from sembridge.layout import Shard
from sembridge.lowering import LADDER, POLICIES, REFERENCE, SEMANTIC, Policy, compile_edge, lower
from sembridge.plan import AllGather, Broadcast, Part, Project, Reduce, Send
from sembridge.surfaces import Choice, ChosenTokens, Complete, Logprobs, Tokens
from sembridge.verdict import Verdict
from tests.core.build import contract, plan

ALL4 = (("p0", "p1", "p2", "p3"),)
LOGITS = (4, 1000)


def at(*ids):
    return [Project(projection="argmax", at=x) for x in ids]


def token(src, dst):
    return Send(src=src, dst=dst, surface="tokens")


def slices(*lanes):
    sends = [
        Send(src=f"p{c[1:]}", dst=c, part=Part(index=i, of=len(lanes))) for i, c in enumerate(lanes)
    ]
    return [*sends, AllGather(members=lanes)]


C4 = ("c0", "c1", "c2", "c3")
NAMED = {
    "R0": (contract(4, shape=LOGITS, surface=Tokens()), REFERENCE, [*slices(*C4), *at(*C4)]),
    "P0": (
        contract(4, shape=LOGITS, surface=Tokens()),
        SEMANTIC,
        [*at("p0", "p1", "p2", "p3"), *(token(f"p{i}", f"c{i}") for i in range(4))],
    ),
    "S1": (
        contract(4, shape=LOGITS, surface=Tokens(), owner=("p3",)),
        SEMANTIC,
        [*at("p3"), token("p3", "c0"), Broadcast(src="c0", dsts=C4[1:], surface="tokens")],
    ),
    "L0": (contract(4), SEMANTIC, slices(*C4)),
    "S0": (
        contract(4, classes=ALL4),
        SEMANTIC,
        [Send(src="p0", dst="c0"), Broadcast(src="c0", dsts=C4[1:])],
    ),
    "C1": (
        contract(4, classes=ALL4),
        LADDER[0],
        [Send(src=f"p{i}", dst=f"c{i}") for i in range(4)],
    ),
    "log-probabilities": (
        contract(4, shape=LOGITS, surface=Logprobs()),
        SEMANTIC,
        [*slices(*C4), *at(*C4)],
    ),
    "partial": (
        contract(2, reduce="sum"),
        SEMANTIC,
        [
            Reduce(operator="sum", sources=("p0", "p1"), targets=("p0", "p1")),
            Send(src="p0", dst="c0"),
            Broadcast(src="c0", dsts=("c1",)),
        ],
    ),
    "exact shards": (
        contract(2, placement=Shard(dim=1)),
        SEMANTIC,
        [Send(src="p0", dst="c0"), Send(src="p1", dst="c1")],
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_papers_plans(name):
    edge, policy, ops = NAMED[name]
    assert list(lower(edge, policy).ops) == ops


def footprint(edge, policy=SEMANTIC):
    return check(edge, lower(edge, policy)).footprint


def test_only_demanded_consumers_are_served():
    edge = contract(4, tails="tuuv", demanded="0101", classes=ALL4)
    assert lower(edge).ops == (Send(src="p0", dst="c1"), Send(src="p0", dst="c3"))


def test_one_representative_for_each_class_and_domain():
    edge = contract(4, tails="ttuu", classes=(("p0", "p2"), ("p1", "p3")))
    assert lower(edge).ops == (
        Send(src="p0", dst="c0"),
        Send(src="p0", dst="c2"),
        Send(src="p1", dst="c1"),
        Send(src="p1", dst="c3"),
    )


def test_a_consumer_at_home_is_served_without_crossing():
    edge = contract(2, tails="ht", classes=(("p0", "p1"),))
    assert lower(edge).ops == (Broadcast(src="p0", dsts=("c0",)), Send(src="p0", dst="c1"))


def test_the_owner_at_home_projects_once_for_all():
    edge = contract(3, tails="hth", surface=Tokens(), owner=("p2",), shape=LOGITS)
    assert lower(edge).ops == (
        *at("p2"),
        Broadcast(src="p2", dsts=("c0", "c2"), surface="tokens"),
        token("p2", "c1"),
    )


def test_slices_are_assembled_once_and_relayed_to_the_other_domains():
    edge = contract(4, tails="tttuu", sources="01233")
    assert list(lower(edge).ops)[-2:] == [
        Send(src="c0", dst="c3"),
        Broadcast(src="c3", dsts=("c4",)),
    ]
    each = footprint(edge, REFERENCE)
    assert footprint(edge) < each
    assert footprint(edge).cross_bytes == each.cross_bytes


def test_one_mapped_producer_needs_no_slices():
    edge = contract(2, tails="ttt", sources="111")
    assert lower(edge).ops == (Send(src="p1", dst="c0"), Broadcast(src="c0", dsts=("c1", "c2")))


def test_tokens_larger_than_the_value_are_projected_at_the_consumer():
    edge = contract(1, shape=(3, 1), dtype="bfloat16", surface=Tokens())
    assert lower(edge).ops == (Send(src="p0", dst="c0"), *at("c0"))
    wide = contract(1, shape=(3, 2), dtype="bfloat16", surface=Tokens())
    assert lower(wide).ops == (*at("p0"), token("p0", "c0"))


def test_a_small_vocabulary_crosses_once_as_slices():
    edge = contract(4, shape=(1, 3), surface=Tokens())
    assert footprint(edge).cross_bytes == 12
    assert isinstance(lower(edge).ops[4], AllGather)


def test_footprint_of_the_representative_plan():
    edge = contract(4, classes=ALL4, shape=(4, 5120), dtype="bfloat16")
    assert footprint(edge) == Footprint(
        cross_bytes=40960, cross_startups=1, local_bytes=3 * 40960, local_startups=1, ops=2
    )


def test_the_ladder_switches_one_capability_on_at_a_time():
    flags = [(p.prune_demand, p.multicast, p.substitute) for p in LADDER]
    assert flags == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
    ]
    assert list(POLICIES) == ["semantic", "reference", *(p.name for p in LADDER)]


def test_stable_order_counts():
    edge = contract(12, placement=Shard(dim=0))
    assert [op.src for op in lower(edge).ops] == [f"p{i}" for i in range(12)]


APART = Policy(name="apart", materialize="never")


def drawn(random):
    """Lanes of few rows and columns: serving them apart and assembling cost about the same.

    Parameters of a row are ten times its token: values that weigh about as much are frequent.
    """
    tails = "".join(random.choices("ghtuv", k=random.randint(3, 6)))
    rows, wide = random.randint(0, 2), random.choice((1, 11)) + random.randint(0, 4)
    given = random.choice(("consumers", "consumers", "everywhere"))
    chosen = ChosenTokens(choices=(Choice(),) * rows, given=given)
    edge = contract(
        3,
        tails=tails,
        sources="".join(random.choices("012", k=len(tails))),
        shape=(rows, wide),
        dtype=random.choice(("float32", "bfloat16")),
        surface=random.choice((Complete(), Tokens(), Logprobs(), chosen, chosen, chosen)),
    )
    producers = tuple(Producer(id=f"p{i}", domain=random.choice("gh")) for i in range(3))
    domains = edge.domains | {"g": edge.domains["h"]}
    return msgspec.structs.replace(edge, producers=producers, domains=domains)


def assembled(edge, here):
    """The plan that assembles the lanes of one domain, and relays from there to the others."""
    home = {p.id: p.domain for p in edge.producers}
    remote = {c.id: home[c.source] != c.domain for c in edge.consumers}
    away = {c.domain for c in edge.consumers if remote[c.id]}
    apart = lower(edge, APART)
    moved = {op.surface for op in apart.ops if isinstance(op, Send | Broadcast)}
    carried = "tokens" if "tokens" in moved else "value"
    projection = next((op.projection for op in apart.ops if isinstance(op, Project)), None)

    def project(consumers):
        return [Project(projection=projection, at=c) for c in consumers] if projection else []

    lanes = [c for c in edge.consumers if c.domain == here and remote[c.id]]
    first, others = lanes[0].id, [c for c in edge.consumers if c not in lanes]
    local = tuple(c for c in others if c.domain not in away)
    ops = []
    if local:
        ops += lower(msgspec.structs.replace(edge, consumers=local), APART).ops
    ops += [
        Send(src=c.source, dst=c.id, part=Part(index=i, of=len(lanes))) for i, c in enumerate(lanes)
    ]
    ops.append(AllGather(members=tuple(c.id for c in lanes)))
    ops += project(c.id for c in lanes)
    for domain in sorted(away, key=lambda d: d != here):
        reached = [c.id for c in others if c.domain == domain]
        root = first
        if domain != here:
            root = reached.pop(0)
            ops.append(Send(src=first, dst=root, surface=carried))
        if reached:
            ops.append(Broadcast(src=root, dsts=tuple(reached), surface=carried))
    if carried == "value":
        ops += project(c.id for c in others if c.domain in away)
    return plan(*ops)


def test_lanes_are_assembled_exactly_where_that_moves_less():
    random, assembles = Random(5), Counter()
    for _ in range(600):
        edge = drawn(random)
        home = {p.id: p.domain for p in edge.producers}
        remote = [c for c in edge.consumers if c.domain != home[c.source]]
        domains = {c.domain for c in remote}
        mixed = [d for d in domains if len({c.source for c in remote if c.domain == d}) > 1]
        plans = [lower(edge, APART), *(assembled(edge, domain) for domain in mixed)]
        reports = [check(edge, p) for p in plans]
        assert {r.verdict for r in reports} == {Verdict.LEGAL}
        made = lower(edge)
        assert check(edge, made).footprint == min(r.footprint for r in reports)
        assembles[bool(mixed), AllGather in map(type, made.ops)] += 1
    assert min(assembles[True, True], assembles[True, False]) > 50


@pytest.mark.parametrize(
    ("sources", "wide", "gathers"),
    [("001", 11, True), ("001", 12, False), ("012", 13, True), ("012", 14, False)],
)
def test_among_equal_bytes_startups_decide_and_parameters_count(sources, wide, gathers):
    """One value as three slices, or one token a source and the parameters: ten times a token."""
    chosen = ChosenTokens(choices=(Choice(), Choice()))
    edge = contract(3, tails="ttt", sources=sources, shape=(2, wide), surface=chosen)
    assert (AllGather in map(type, lower(edge).ops)) is gathers


def test_the_first_lane_serves_the_others_of_its_domain():
    edge = contract(3, tails="ttt")
    producers = (*edge.producers[:2], Producer(id="p2", domain="t"))
    edge = msgspec.structs.replace(edge, producers=producers)
    assert list(lower(edge).ops) == [*slices("c0", "c1"), Broadcast(src="c0", dsts=("c2",))]


@pytest.mark.parametrize("lanes", [2, 300])
def test_among_domains_of_as_many_lanes_one_without_others_beside_them_assembles(lanes):
    tails, mapped = "t" * (lanes + 1) + "u" * lanes, "01" * (lanes // 2)
    edge = contract(3, tails=tails, sources=f"{mapped}2{mapped}", shape=(lanes, 6))
    producers = (*edge.producers[:2], Producer(id="p2", domain="t"))
    edge = msgspec.structs.replace(edge, producers=producers)
    gather = next(op for op in lower(edge).ops if isinstance(op, AllGather))
    assert gather.members == tuple(c.id for c in edge.consumers[lanes + 1 :])


def test_names_read_from_a_file_are_compared_by_what_they_say():
    edge = contract(2, tails="ht")
    home = dict.fromkeys("ht", Domain(stack="cuda")) | {"home": edge.domains["h"]}
    edge = msgspec.structs.replace(
        edge,
        domains=home,
        producers=tuple(msgspec.structs.replace(p, domain="home") for p in edge.producers),
        consumers=(msgspec.structs.replace(edge.consumers[0], domain="home"), edge.consumers[1]),
    )
    read = io.decode_contract(io.encode(edge))
    assert lower(read).ops == (Broadcast(src="p0", dsts=("c0",)), Send(src="p1", dst="c1"))


@pytest.mark.parametrize("policy", [REFERENCE, LADDER[0]])
def test_a_policy_is_what_it_says(policy):
    edge = contract(2, tails="ttuu")
    equal = msgspec.json.decode(msgspec.json.encode(policy), type=Policy)
    assert lower(edge, equal) == lower(edge, policy)
    with pytest.raises(AttributeError):
        policy.multicast = True
    with pytest.raises(TypeError):
        Policy("mine", False)


def test_a_plan_that_the_checker_refuses_is_not_returned(monkeypatch):
    monkeypatch.setattr(lowering, "passes", lambda ob, policy: [])
    with pytest.raises(PlanRejected):
        lower(contract())


def test_an_edge_is_compiled_by_names_and_the_policy_by_name_alone():
    given = contract()
    edge = BoundaryEdge(
        name="edge",
        value=given.value,
        domains=given.domains,
        producers=given.producers,
        consumers=tuple(Lane(id=c.id, domain=c.domain, source=c.source) for c in given.consumers),
        placement=given.placement,
    )
    facts = {"graph": NO_GRAPH, "runtime": NO_RUNTIME, "evidence": NO_EVIDENCE}
    assert list(compile_edge(edge=edge, **facts).plan.ops) == slices("c0", "c1")
    copies = compile_edge(edge, *facts.values(), policy=LADDER[0])
    assert list(copies.plan.ops) == [Send(src="p0", dst="c0"), Send(src="p1", dst="c1")]
    with pytest.raises(TypeError):
        compile_edge(edge, *facts.values(), LADDER[0])
