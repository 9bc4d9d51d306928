"""Spoiled frames and handshakes are refused for the stated reason; noise harms nobody."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutations.frames import (
    FIELDS,
    MUTANTS,
    Fate,
    FrameMutant,
    Stream,
    exchanges,
    receive,
    tally,
)
from mutations.fuzz import corrupt, fuzz
from sembridge.live.frame import HEADER

EXCHANGES = tuple(exchanges().values())


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_every_mutant_is_refused_for_what_is_wrong_with_it(mutant: FrameMutant):
    found = tally(mutant)
    assert found.made > 0
    assert found.amiss == 0, found


def test_what_nothing_is_wrong_with_is_delivered():
    for exchange in EXCHANGES:
        assert receive(exchange, Stream(exchange.valid)) == Fate(reason="", delivered=2)


def test_a_mutant_that_is_let_through_counts_as_amiss():
    stale = MUTANTS["stale-epoch"]
    assert stale.as_it_should(Fate(reason="", delivered=2, stale=1))
    assert not stale.as_it_should(Fate(reason="", delivered=2, stale=0))
    assert not stale.as_it_should(Fate(reason="", delivered=2, stale=1, wrong=True))
    flipped = MUTANTS["flipped-payload"]
    assert flipped.as_it_should(Fate(reason="checksum", delivered=0))
    assert not flipped.as_it_should(Fate(reason="", delivered=2))
    assert not flipped.as_it_should(Fate(reason="length", delivered=0))


def test_the_fields_are_the_headers():
    edges = [edge for place in FIELDS.values() for edge in place]
    assert edges[0] == 0 and edges[-1] == HEADER.size
    assert edges[1:-1:2] == edges[2::2]


@settings(max_examples=300)
@given(st.sampled_from(EXCHANGES), st.integers(0, 2**32), st.data())
def test_no_edit_of_a_stream_delivers_anything_else(exchange: Any, seed: int, data: Any):
    stream = corrupt(exchange.valid, random.Random(seed))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(stream)))
        stream = stream[:at] + data.draw(st.binary(max_size=80)) + stream[at:]
    fate = receive(exchange, Stream(stream))
    assert not fate.wrong
    if not fate.reason:  # then what was due arrived before the damage
        assert fate.delivered == 2 and stream.startswith(exchange.valid)


@given(st.sampled_from(EXCHANGES), st.binary(max_size=400))
def test_noise_is_never_delivered(exchange: Any, noise: bytes):
    fate = receive(exchange, Stream(noise))
    assert fate.reason and not fate.delivered


def test_a_campaign_leaves_nothing_behind_and_is_the_same_for_a_seed():
    first, second = fuzz(600, seed=3), fuzz(600, seed=3)
    assert first.clean, first
    assert first.streams == 600 and first.reasons.get("deadline", 0) <= 3
    assert (first.reasons, first.delivered) == (second.reasons, second.delivered)


def test_the_command(sembridge: Callable[..., Any]):
    ran = sembridge("mutate", "--frames", "--limit", "200", "--json")
    found = json.loads(ran.out)
    assert ran.code == 0 and found["clean"]
    assert {m["name"] for m in found["mutants"]} == MUTANTS.keys()
    assert found["fuzz"]["streams"] == 200 and found["fuzz"]["wrong"] == 0
    listed = sembridge("mutate", "--frames", "--list")
    assert listed.code == 0 and "flipped-payload" in listed.out
