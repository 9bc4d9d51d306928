"""Algorithm 1, line by line, and the plans that the paper names."""

from __future__ import annotations

import pytest

from sembridge.check import check
from sembridge.footprint import Footprint
from sembridge.layout import Shard
from sembridge.lowering import LADDER, POLICIES, REFERENCE, SEMANTIC, lower
from sembridge.plan import AllGather, Broadcast, Part, Project, Reduce, Send
from sembridge.surfaces import Logprobs, Tokens
from tests.core.build import contract

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
