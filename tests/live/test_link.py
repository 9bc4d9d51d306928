"""The emulated link: one bucket for all lanes, and delays that are deadlines."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from time import monotonic_ns

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembridge.live.frame import control
from sembridge.live.link import CHUNK, Link, LinkSpec, wait_until
from tests.live.pairs import connected, soon


def test_lanes_share_one_bucket(tmp_path: Path):
    spec = LinkSpec(rate_bit_s=8e6)  # a byte takes a microsecond
    lanes = [Link(spec, str(tmp_path / "link")) for _ in range(3)]
    starts = [lane.reserve(1_000_000) for lane in lanes * 2]
    # Each begins when the one before, of whatever lane, has left.
    assert [b - a for a, b in pairwise(starts)] == [10**9] * 5
    other = Link(spec, str(tmp_path / "another"))
    assert other.reserve(1) < starts[1]


def test_a_link_that_was_idle_owes_nothing(tmp_path: Path):
    link = Link(LinkSpec(rate_bit_s=8e9), str(tmp_path / "link"))
    link.reserve(10)
    wait_until(monotonic_ns() + 2_000_000)
    before = monotonic_ns()
    assert link.reserve(10) >= before


@given(st.integers(1, 4 * CHUNK), st.integers(1, 10_000), st.integers(0, 1000))
def test_pieces_arrive_in_order_and_half_a_round_trip_later(size: int, rate: int, rtt_ms: int):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        link = Link(LinkSpec(rate_bit_s=rate * 1e6, rtt_s=rtt_ms / 1e3), f"{folder}/link")
        pieces = list(link.arrivals(0, size))
        link.close()
    assert [p[0] for p in pieces] == [0, *[p[1] for p in pieces[:-1]]]
    assert pieces[-1][1] == size
    assert all(0 < end - begin <= CHUNK for begin, end, _ in pieces)
    last = size * 8e9 / (rate * 1e6) + rtt_ms * 1e6 / 2
    assert pieces[-1][2] == pytest.approx(last, abs=2)


def test_nothing_arrives_before_its_time(tmp_path: Path):
    link = Link(LinkSpec(rate_bit_s=1e9, rtt_s=0.02), str(tmp_path / "link"))
    with connected(link) as (a, b):
        begun = monotonic_ns()
        a.send(control(125_000, epoch=0), memoryview(bytes(125_000)), deadline=soon())
        b.receive(control(125_000, epoch=0), memoryview(bytearray(125_000)), deadline=soon())
        # A millisecond at 1 Gbit/s, and half a round trip.
        assert monotonic_ns() - begun >= 11_000_000


@pytest.mark.parametrize("said", ['{"rate_bit_s":0}', '{"rtt_s":-1}', '{"rate_bit_s":1e30}'])
def test_links_that_cannot_be(said: str):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(said, type=LinkSpec)


def test_a_link_of_no_limit_is_no_link():
    assert not LinkSpec().shaped
    assert LinkSpec(rtt_s=1e-3).shaped
    assert LinkSpec(rate_bit_s=1e9).shaped
