"""One violating plan for every rule of the registry, beside a legal neighbour."""

from __future__ import annotations

import msgspec
import pytest

from sembridge import rules as r
from sembridge.check import CHECKER, Checker, check
from sembridge.layout import Replicate, Shard
from sembridge.obligations import resolve_valid
from sembridge.plan import AllGather, Broadcast, Part, Project, Reduce, Send
from sembridge.surfaces import Choice, ChosenTokens, Logprobs, ShardedTokens, Tokens
from sembridge.verdict import Verdict
from tests.core.build import TAG, contract, plan

SHARD = contract(placement=Shard(dim=0))
REPLICA = contract(classes=(("p0", "p1"),))
LAYOUT = contract()
SUM = contract(reduce="sum")
TOKENS = contract(surface=Tokens(), classes=(("p0", "p1"),))
LATE = contract(surface=Logprobs(), classes=(("p0", "p1"),))
OWNED = contract(owner=("p1",))
SUM_TOKENS = contract(reduce="sum", surface=Tokens())
SHARDED = contract(placement=Shard(dim=1), surface=ShardedTokens(vocabulary=11))
CHOSEN = contract(surface=ChosenTokens(choices=(Choice(banned=(0,)), Choice(bias=((1, 2.0),)))))

LANES = (Send(src="p0", dst="c0"), Send(src="p1", dst="c1"))
ONE = (Send(src="p0", dst="c0"), Broadcast(src="c0", dsts=("c1",)))
HALVES = (
    Send(src="p0", dst="c0", part=Part(index=0, of=2)),
    Send(src="p1", dst="c1", part=Part(index=1, of=2)),
)
GATHER = AllGather(members=("c0", "c1"))
BOTH = ("p0", "p1")
REDUCE = Reduce(operator="sum", sources=BOTH, targets=BOTH)
TOKEN = (
    Project(projection="argmax", at="p0"),
    Send(src="p0", dst="c0", surface="tokens"),
    Broadcast(src="c0", dsts=("c1",), surface="tokens"),
)
COMBINE = (
    Project(projection="sharded_argmax", at="p0"),
    Project(projection="sharded_argmax", at="p1"),
    Reduce(operator="first_largest", sources=BOTH, targets=BOTH, surface="tokens"),
)
CHOOSE = (
    Send(src="c0", dst="p0", surface="parameters"),
    Broadcast(src="p0", dsts=("p1",), surface="parameters"),
    Project(projection="choose", at="p0"),
    Project(projection="choose", at="p1"),
    Send(src="p0", dst="c0", surface="tokens"),
    Send(src="p1", dst="c1", surface="tokens"),
)
OWN = (Send(src="p1", dst="c0"), Broadcast(src="c0", dsts=("c1",)))

LEGAL = [
    (SHARD, LANES),
    (REPLICA, ONE),
    (LAYOUT, (*HALVES, GATHER)),
    (LAYOUT, LANES),
    (SUM, (REDUCE, *ONE)),
    (TOKENS, TOKEN),
    (LATE, (*ONE, Project(projection="argmax", at="c0"), Project(projection="argmax", at="c1"))),
    (OWNED, OWN),
    (SUM_TOKENS, (REDUCE, *TOKEN)),
    (SHARDED, (*COMBINE, *TOKEN[1:])),
    (CHOSEN, CHOOSE),
]

BROKEN = {
    r.SEND_ENDS: (SHARD, (*LANES, Send(src="p0", dst="c9")), "c9"),
    r.SENDER_HOLDS: (REPLICA, (Send(src="c0", dst="p0"), *ONE), "c0"),
    r.ONLY_VALUE_IN_SLICES: (
        TOKENS,
        (
            TOKEN[0],
            Send(src="p0", dst="c0", surface="tokens", part=Part(index=0, of=2)),
            *TOKEN[1:],
        ),
        "p0",
    ),
    r.SEND_CROSSES: (
        contract(1, tails="ht", classes=(("p0",),)),
        (Send(src="p0", dst="c0"), Send(src="p0", dst="c1")),
        "c0",
    ),
    r.SEND_ONCE: (REPLICA, (*ONE, Send(src="p1", dst="c1")), "c1"),
    r.BROADCAST_ENDS: (REPLICA, (ONE[0], Broadcast(src="c0", dsts=("c1", "x"))), "x"),
    r.ROOT_HOLDS: (REPLICA, ONE[::-1], "c0"),
    r.BROADCAST_INSIDE: (REPLICA, (Broadcast(src="p0", dsts=("c0", "c1")),), "c0"),
    r.BROADCAST_ONCE: (REPLICA, (ONE[0], Broadcast(src="c0", dsts=("c1", "c1"))), "c1"),
    r.PROJECT_AT: (TOKENS, (Project(projection="argmax", at="x"), *TOKEN), "x"),
    r.PROJECT_READS: (TOKENS, (Project(projection="argmax", at="c0"), *TOKEN), "c0"),
    r.PROJECT_TAKES: (CHOSEN, CHOOSE[:1] + CHOOSE[2:], "p1"),
    r.PROJECT_COMPLETE: (SUM_TOKENS, TOKEN, "p0"),
    r.PROJECT_REGISTERED: (TOKENS, (Project(projection="argmin", at="p0"), *TOKEN), "p0"),
    r.PROJECT_WHOLE: (
        LATE,
        (HALVES[0], Project(projection="argmax", at="c0"), HALVES[1], GATHER),
        "c0",
    ),
    r.PROJECT_ONCE: (TOKENS, (TOKEN[0], *TOKEN), "p0"),
    r.REDUCE_ENDS: (SUM, (Reduce(operator="sum", sources=BOTH, targets=()), REDUCE, *ONE), None),
    r.REDUCE_READS: (
        SUM,
        (Reduce(operator="sum", sources=("p0", "c0"), targets=BOTH), REDUCE, *ONE),
        "c0",
    ),
    r.REDUCE_INSIDE: (
        SUM,
        (
            Reduce(operator="sum", sources=BOTH, targets=("p0", "c0")),
            Broadcast(src="c0", dsts=("c1",)),
        ),
        "c0",
    ),
    r.REDUCE_OUTSTANDING: (REPLICA, (REDUCE, *ONE), None),
    r.REDUCE_OPERATOR: (SUM, (Reduce(operator="mean", sources=BOTH, targets=BOTH), *ONE), None),
    r.REDUCE_SOURCES: (
        SUM,
        (Reduce(operator="sum", sources=("p0", "p0"), targets=BOTH), *ONE),
        None,
    ),
    r.REDUCE_INCOMPLETE: (SUM, (REDUCE, REDUCE, *ONE), "p0"),
    r.REDUCE_ONCE: (
        SUM,
        (Reduce(operator="sum", sources=BOTH, targets=("p0", "p0")), *ONE),
        "p0",
    ),
    r.GATHER_ENDS: (LAYOUT, (*HALVES, AllGather(members=()), GATHER), None),
    r.GATHER_READS: (LAYOUT, (GATHER, *LANES), "c0"),
    r.GATHER_WHOLE: (
        LAYOUT,
        (HALVES[0], Send(src="p1", dst="c1", part=HALVES[0].part), GATHER),
        None,
    ),
    r.GATHER_INSIDE: (contract(tails="tu"), (*HALVES, GATHER), "c1"),
    r.COVERED: (REPLICA, ONE[:1], "c1"),
    r.SURFACED: (LATE, ONE, "c0"),
    r.COMPLETED: (SUM, ONE, "c0"),
    r.OWNED: (OWNED, ONE, "c0"),
    r.ALL_SOURCES: (
        contract(3, reduce="sum"),
        (Reduce(operator="sum", sources=BOTH, targets=BOTH), Send(src="p0", dst="c0")),
        "c0",
    ),
    r.LINEAGE: (LAYOUT, ONE, "c1"),
    r.MAPPED: (SHARD, (Send(src="p1", dst="c0"), Send(src="p0", dst="c1")), "c0"),
}
PLANS = {
    r.NAMED: plan(*ONE, name="another"),
    r.TAGGED: plan(*ONE, tag=msgspec.structs.replace(TAG, epoch=1)),
}


@pytest.mark.parametrize(("edge", "ops"), LEGAL)
def test_legal_neighbours(edge, ops):
    assert check(edge, plan(*ops)).violations == ()


def test_every_rule_has_an_example():
    assert {*BROKEN, *PLANS} == set(r.RULES)
    assert len({rule.id for rule in r.RULES}) == len(r.RULES)


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.id)
def test_broken_rule_is_reported_with_op_and_endpoint(rule):
    edge, ops, endpoint = BROKEN[rule]
    ob, alone = resolve_valid(edge), Checker([rule])
    found = alone.violations(ob, plan(*ops))
    assert found, "the rule by itself sees it"
    assert {v.rule for v in found} == {rule.name}
    assert endpoint in {v.endpoint for v in found}
    assert all((v.op is None) == (rule.on == r.OBSERVATION) for v in found)
    everything = CHECKER.violations(ob, plan(*ops))
    assert all(v in everything for v in found)
    without = Checker([other for other in r.RULES if other is not rule])
    assert [v for v in everything if v not in found] == without.violations(ob, plan(*ops))


@pytest.mark.parametrize("rule", PLANS, ids=lambda rule: rule.id)
def test_identity(rule):
    report = check(REPLICA, PLANS[rule])
    assert report.verdict is Verdict.ILLEGAL
    assert [(v.rule, v.op, v.endpoint) for v in report.violations] == [("identity", None, None)]


def test_a_plan_without_the_contracts_tag_is_not_its_plan():
    assert {v.rule for v in check(REPLICA, plan(*ONE, tag=None)).violations} == {"identity"}


def test_every_violation_is_reported_not_the_first():
    ops = (Broadcast(src="c0", dsts=("c1",)), Send(src="p1", dst="c0"), Send(src="p1", dst="c0"))
    found = check(SHARD, plan(*ops, tag=None)).violations
    assert [(v.rule, v.op, v.endpoint) for v in found] == [
        ("identity", None, None),
        ("availability", 0, "c0"),
        ("redelivery", 2, "c0"),
        ("provenance", None, "c0"),
        ("coverage", None, "c1"),
    ]


def test_slices_of_different_partitions_combine_where_they_tile():
    edge = contract(1, tails="t", shape=(6,))
    third = [Send(src="p0", dst="c0", part=Part(index=i, of=3)) for i in range(3)]
    half = Send(src="p0", dst="c0", part=Part(index=0, of=2))
    last = Send(src="p0", dst="c0", part=Part(index=1, of=2))
    sixth = Send(src="p0", dst="c0", part=Part(index=3, of=6))
    assert check(edge, plan(*third)).verdict is Verdict.LEGAL
    assert check(edge, plan(half, sixth, third[2])).verdict is Verdict.LEGAL
    assert {v.rule for v in check(edge, plan(half, third[1], last)).violations} == {"redelivery"}
    assert {v.rule for v in check(edge, plan(third[2], third[0])).violations} == {"coverage"}


def test_one_foreign_producer_is_a_substitution_however_it_is_sliced():
    edge = contract(placement=Replicate())
    slices = [Send(src="p0", dst="c1", part=Part(index=i, of=2)) for i in range(2)]
    assert {v.rule for v in check(edge, plan(LANES[0], *slices)).violations} == {"substitution"}


def test_evidence_authorizes_nothing():
    seen = contract(classes=(("p0", "p1"),), classes_origin="validation")
    assert {v.rule for v in check(seen, plan(*ONE)).violations} == {"substitution"}
    assert check(REPLICA, plan(*ONE)).verdict is Verdict.LEGAL


def test_empty_slices_deliver_nothing_but_their_sources():
    edge = contract(tails="tt", shape=(1,))
    assert check(edge, plan(*HALVES, GATHER)).verdict is Verdict.LEGAL
    again = Send(src="p0", dst="c1", part=Part(index=1, of=2))
    assert {v.rule for v in check(edge, plan(*HALVES, again, GATHER)).violations} == {"redelivery"}
