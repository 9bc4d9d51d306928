"""Contracts that ask for the new surfaces: validation, files, plans, bytes, and both judges."""

from __future__ import annotations

import json

import msgspec
import pytest

from sembridge import io
from sembridge.check import check
from sembridge.coalesce import graph_cost
from sembridge.contract import Producer
from sembridge.draw import draw_text
from sembridge.errors import BadInput
from sembridge.footprint import Footprint
from sembridge.layout import Replicate, Shard
from sembridge.lowering import LADDER, REFERENCE, lower
from sembridge.obligations import resolve, resolve_valid, validate
from sembridge.plan import AllGather, Broadcast, Project, Reduce, Send
from sembridge.reference import Outcome, execute
from sembridge.surfaces import (
    Choice,
    ChosenTokens,
    ShardedTokens,
    ShardedTopLogprobs,
    TopLogprobs,
)
from sembridge.verdict import Verdict
from sembridge.wire import framed
from tests.core.build import contract, plan

LAST = Shard(dim=1)
FOUR = (4, 1000)
KEY = {"temperature": 1.0, "seed": 1, "position": 2}


def sharded(**options):
    vocabulary = options.pop("vocabulary", 12)
    return contract(placement=LAST, surface=ShardedTokens(vocabulary=vocabulary), **options)


def chosen(*choices, **options):
    return contract(surface=ChosenTokens(choices=choices), **options)


REJECTED = {
    "no shards": contract(surface=ShardedTokens(vocabulary=6)),
    "shards of rows": contract(placement=Shard(dim=0), surface=ShardedTokens(vocabulary=6)),
    "a scalar": contract(shape=(), surface=ShardedTokens(vocabulary=1)),
    "more tokens than columns": sharded(vocabulary=13),
    "padding said twice": sharded(valid_last=5),
    "an index too large": contract(
        placement=LAST,
        shape=(1, 2**24),
        surface=ShardedTokens(vocabulary=2**24 + 2, output_dtype="float32"),
    ),
    "integers": sharded(dtype="int32"),
    "two domains of shards": msgspec.structs.replace(
        sharded(), producers=(Producer(id="p0", domain="h"), Producer(id="p1", domain="t"))
    ),
    "whole logits over shards": contract(placement=LAST, surface=TopLogprobs(k=1)),
    "more than there are": contract(surface=TopLogprobs(k=7)),
    "more than are valid": contract(surface=TopLogprobs(k=6), valid_last=5),
    "too many columns": contract(shape=(1, 2**30 + 1), surface=TopLogprobs(k=1)),
    "a choice for each row": chosen(Choice()),
    "no choices": chosen(),
    "some choices": contract(surface=TopLogprobs(k=1, choices=(Choice(),))),
    "no seed": chosen(Choice(), Choice(temperature=1.0, position=3)),
    "no position": chosen(Choice(), Choice(temperature=1.0, seed=3)),
    "no such token": chosen(Choice(), Choice(banned=(6,))),
    "a padding token": chosen(Choice(), Choice(bias=((5, 1.0),)), valid_last=5),
    "two biases": chosen(Choice(), Choice(bias=((1, 1.0), (1, 2.0)))),
    "nothing allowed": chosen(Choice(), Choice(allowed=())),
    "all banned": chosen(Choice(), Choice(banned=(0, 1, 2, 3, 4, 5))),
    "all allowed are banned": chosen(Choice(), Choice(allowed=(1, 2), banned=(2, 1))),
}
ACCEPTED = {
    "uneven shards": sharded(vocabulary=7),
    "an empty shard": sharded(vocabulary=6),
    "one shard": contract(1, placement=LAST, surface=ShardedTokens(vocabulary=6)),
    "a vocabulary above 2^24": contract(
        placement=LAST, shape=(1, 2**24), surface=ShardedTokens(vocabulary=2**24 + 2)
    ),
    "an empty batch": contract(shape=(0, 6), surface=TopLogprobs(k=2)),
    "an empty batch of choices": chosen(shape=(0, 6)),
    "an empty batch of shards": sharded(shape=(0, 6)),
    "k of 0": contract(surface=TopLogprobs(k=0)),
    "every token": contract(surface=TopLogprobs(k=6)),
    "one allowed": chosen(Choice(allowed=(3,)), Choice(banned=(0, 1, 2, 3, 4))),
    "keyed log-probabilities": contract(
        surface=TopLogprobs(k=2, choices=(Choice(**KEY), Choice(bias=((0, 2.5),))))
    ),
    "64-bit indices": contract(surface=TopLogprobs(k=2, output_dtype="int64")),
    "top log-probabilities of partials": contract(reduce="sum", surface=TopLogprobs(k=2)),
    "top log-probabilities of shards": contract(
        3, placement=LAST, surface=ShardedTopLogprobs(k=5, vocabulary=14)
    ),
    "owned choices": chosen(Choice(**KEY), Choice(), owner=("p1",)),
    "choices known everywhere": contract(
        surface=ChosenTokens(choices=(Choice(**KEY), Choice()), given="everywhere")
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name):
    assert {v.rule for v in validate(resolve(REJECTED[name]))} == {"contract.projection"}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_lowered_and_executed(name):
    edge = ACCEPTED[name]
    assert io.decode_contract(io.encode(edge)) == edge
    for policy in (REFERENCE, *LADDER):
        made = lower(edge, policy)
        assert check(edge, made).verdict is Verdict.LEGAL
        if edge.value.shape[-1] < 2**20:
            assert execute(edge, made).outcome is Outcome.EQUAL


# plans -----------------------------------------------------------------------------------------

C4 = ("c0", "c1", "c2", "c3")
P4 = ("p0", "p1", "p2", "p3")


def test_shards_are_combined_where_they_are():
    edge = contract(4, placement=LAST, shape=FOUR, surface=ShardedTokens(vocabulary=3999))
    made = lower(edge)
    assert made.ops == (
        *(Project(projection="sharded_argmax", at=p) for p in P4),
        Reduce(operator="first_largest", sources=P4, targets=P4, surface="tokens"),
        Send(src="p0", dst="c0", surface="tokens"),
        Broadcast(src="c0", dsts=C4[1:], surface="tokens"),
    )
    pairs = 3 * 4 * (4 + 4)
    assert check(edge, made).footprint == Footprint(
        cross_bytes=16,
        cross_startups=1,
        local_bytes=pairs + 3 * 16,
        local_startups=1,
        reductions=1,
        ops=7,
    )
    assert framed(resolve_valid(edge), made.ops).framed == 16 + 48
    assert graph_cost([(edge, made)]).cross_startups == 1
    assert "reduce first_largest" in draw_text(edge, made)


def test_an_owner_issues_the_combined_token():
    edge = contract(
        2, placement=LAST, surface=ShardedTokens(vocabulary=12), owner=("p1",), name="edge"
    )
    assert Send(src="p1", dst="c0", surface="tokens") in lower(edge).ops
    other = plan(
        *lower(contract(2, placement=LAST, surface=ShardedTokens(vocabulary=12))).ops[:3],
        Send(src="p0", dst="c0", surface="tokens"),
        Broadcast(src="c0", dsts=("c1",), surface="tokens"),
    )
    assert {v.rule for v in check(edge, other).violations} == {"authority"}


EDGE = sharded()
LOCAL = tuple(Project(projection="sharded_argmax", at=p) for p in ("p0", "p1"))
BOTH = ("p0", "p1")
COMBINE = Reduce(operator="first_largest", sources=BOTH, targets=BOTH, surface="tokens")
DELIVER = (
    Send(src="p0", dst="c0", surface="tokens"),
    Broadcast(src="c0", dsts=("c1",), surface="tokens"),
)
BROKEN = {
    "a local token delivered as the whole's": (
        (*LOCAL, *DELIVER),
        {"completion", "provenance"},
    ),
    "plain argmax of a shard": (
        (Project(projection="argmax", at="p0"), *LOCAL, COMBINE, *DELIVER),
        {"projection"},
    ),
    "one shard left out": (
        (
            LOCAL[0],
            Reduce(operator="first_largest", sources=("p0",), targets=BOTH, surface="tokens"),
            *DELIVER,
        ),
        {"reduction", "provenance"},
    ),
    "one shard counted for two": (
        (
            *LOCAL,
            Reduce(operator="first_largest", sources=("p0", "p0"), targets=BOTH, surface="tokens"),
            *DELIVER,
        ),
        {"reduction", "provenance"},
    ),
    "combined again": ((*LOCAL, COMBINE, COMBINE, *DELIVER), {"reduction", "redelivery"}),
    "another operator": (
        (
            *LOCAL,
            Reduce(operator="maximum", sources=BOTH, targets=BOTH, surface="tokens"),
            *DELIVER,
        ),
        {"reduction"},
    ),
    "combined across the boundary": (
        (
            *LOCAL,
            Reduce(operator="first_largest", sources=BOTH, targets=("c0", "c1"), surface="tokens"),
        ),
        {"locality"},
    ),
    "combined before it is projected": ((COMBINE, *LOCAL, *DELIVER), {"availability"}),
    "the shards themselves reduced": (
        (Reduce(operator="maximum", sources=BOTH, targets=BOTH), *LOCAL, COMBINE, *DELIVER),
        {"reduction"},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_combine_is_refused_by_both_judges(name):
    ops, rules = BROKEN[name]
    report = check(EDGE, plan(*ops))
    assert {v.rule for v in report.violations} >= rules
    assert execute(EDGE, plan(*ops)).outcome is not Outcome.EQUAL


def test_gathering_shards_is_no_plan_here():
    whole = (Send(src="p0", dst="c0"), Send(src="p1", dst="c1"), AllGather(members=("c0", "c1")))
    report = check(EDGE, plan(*whole))
    assert "surface" in {v.rule for v in report.violations}


def test_parameters_cross_to_the_producers_that_project():
    edge = chosen(*[Choice(**KEY)] * 4, shape=FOUR, owner=("p3",), tp=4)
    made = lower(edge)
    assert made.ops == (
        Send(src="c0", dst="p3", surface="parameters"),
        Project(projection="choose", at="p3"),
        Send(src="p3", dst="c0", surface="tokens"),
        Broadcast(src="c0", dsts=C4[1:], surface="tokens"),
    )
    assert check(edge, made).footprint.cross_bytes == 4 * 40 + 16
    unowned = lower(chosen(*[Choice(**KEY)] * 4, shape=FOUR, tp=4))
    assert unowned.ops[:2] == (
        Send(src="c0", dst="p0", surface="parameters"),
        Broadcast(src="p0", dsts=P4[1:], surface="parameters"),
    )
    known = contract(
        4,
        shape=FOUR,
        owner=("p3",),
        surface=ChosenTokens(choices=(Choice(**KEY),) * 4, given="everywhere"),
    )
    assert check(known, lower(known)).footprint.cross_bytes == 16


def test_parameters_larger_than_the_logits_stay_and_the_logits_cross():
    masks = Choice(allowed=(0, 1, 2, 3, 4, 5), bias=tuple((i, 1.0) for i in range(6)))
    edge = chosen(masks, masks)
    assert not any(getattr(op, "surface", "") == "parameters" for op in lower(edge).ops)


def test_a_producer_without_the_parameters_projects_nothing():
    edge = chosen(Choice(banned=(0,)), Choice(), shape=(2, 600))
    blind = plan(*[op for op in lower(edge).ops if getattr(op, "surface", "") != "parameters"])
    assert {v.rule for v in check(edge, blind).violations} == {"availability", "coverage"}
    assert execute(edge, blind).outcome is Outcome.FAULT


@pytest.mark.parametrize(
    ("surface", "size"),
    [
        (TopLogprobs(k=5), 224),
        (TopLogprobs(k=0), 64),
        (TopLogprobs(k=20), 704),
        (TopLogprobs(k=5, output_dtype="int64"), 4 * (6 * 8 + 8 * 4)),
    ],
)
def test_top_log_probabilities_of_minimax_with_an_owner(surface, size):
    edge = contract(4, shape=(4, 200_064), surface=surface, owner=("p3",))
    found = check(edge, lower(edge)).footprint
    assert (found.cross_bytes, found.cross_startups) == (size, 1)
    assert size < 1000


# files -----------------------------------------------------------------------------------------

MALFORMED = [
    ({"type": "top_logprobs"}, "k"),
    ({"type": "top_logprobs", "k": 1025}, "k"),
    ({"type": "top_logprobs", "k": -1}, "k"),
    ({"type": "top_logprobs", "k": 5.5}, "k"),
    ({"type": "top_logprobs", "k": 5, "output_dtype": "int31"}, "output_dtype"),
    ({"type": "sharded_tokens", "vocabulary": 0}, "vocabulary"),
    ({"type": "chosen_tokens"}, "choices"),
    ({"type": "chosen_tokens", "choices": [{"temperature": -1}]}, "choices[0].temperature"),
    ({"type": "chosen_tokens", "choices": [{"top_p": 0}]}, "choices[0].top_p"),
    ({"type": "chosen_tokens", "choices": [{"min_p": 0}]}, "choices[0].min_p"),
    ({"type": "chosen_tokens", "choices": [{"banned": [-1]}]}, "choices[0].banned[0]"),
    ({"type": "chosen_tokens", "choices": [{"bias": [[1, 1e31]]}]}, "choices[0].bias[0][1]"),
    ({"type": "chosen_tokens", "choices": [], "given": "p0"}, "given"),
]


@pytest.mark.parametrize(("surface", "field"), MALFORMED)
def test_malformed_surfaces_name_the_field(surface, field):
    written = json.loads(io.encode(contract(surface=TopLogprobs(k=1))))
    written["facts"]["surface"]["value"] = surface
    with pytest.raises(BadInput) as caught:
        io.decode_contract(json.dumps(written).encode())
    assert caught.value.path == f"$.facts.surface.value.{field}"


def test_a_reduction_of_the_value_is_written_as_before():
    written = msgspec.json.decode(
        msgspec.json.encode(Reduce(operator="sum", sources=("p0",), targets=("p0",)))
    )
    assert written == {"op": "reduce", "operator": "sum", "sources": ["p0"], "targets": ["p0"]}


def test_partial_records_count_among_what_must_fit():
    large = contract(
        placement=LAST, shape=(2**21, 1), surface=ShardedTopLogprobs(k=0, vocabulary=2)
    )
    assert resolve_valid(large).value_bytes * 4 < 2**31
    with pytest.raises(BadInput, match=r"\$\.value\.shape"):
        execute(large, plan())


def test_only_an_authorizing_fact_asks_for_a_combine():
    edge = msgspec.structs.replace(
        EDGE,
        facts=msgspec.structs.replace(
            EDGE.facts,
            surface=msgspec.structs.replace(EDGE.facts.surface, origin="validation"),
        ),
    )
    ob = resolve_valid(edge)
    assert (ob.observed, ob.reduced, ob.completes) == (("value",), None, "value")
    assert contract().placement == Replicate()
