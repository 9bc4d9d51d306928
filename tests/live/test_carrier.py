"""Connections: what arrives is what was sent, or a typed error, and never late."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sembridge.live.carrier import MAX_STALE, NOTHING, QUEUE_DEPTH, Connection
from sembridge.live.faults import DeadlineExceeded, FrameRejected, LiveError, PeerClosed
from sembridge.live.frame import Frame, control, encode
from sembridge.live.link import Link, LinkSpec
from tests.live.pairs import TAG, connected, frame, soon, tcp_pair

BIG = 3_000_001
HUGE = 40_000_000


def random_bytes(size: int, seed: int = 0) -> memoryview:
    import random

    return memoryview(random.Random(seed).randbytes(size))


@given(st.lists(st.sampled_from([0, 1, 4, 1000, 70_000]), min_size=1, max_size=8))
@settings(max_examples=40)
def test_frames_arrive_in_order_and_intact(sizes: list[int]):
    with connected() as (a, b):
        for n, size in enumerate(sizes):
            a.send(control(size, epoch=n), random_bytes(size, n), deadline=soon())
        for n, size in enumerate(sizes):
            into = bytearray(size)
            b.receive(control(size, epoch=n), memoryview(into), deadline=soon())
            assert into == random_bytes(size, n)
        assert a.traffic.frames_sent == b.traffic.frames_received == len(sizes)
        assert a.traffic.bytes_sent == b.traffic.bytes_received == sum(sizes) + 48 * len(sizes)


@pytest.mark.parametrize("linked", [False, True])
def test_large_payloads_cross_both_ways_at_once(linked: bool, tmp_path: Path):
    spec = LinkSpec(rate_bit_s=4e9, rtt_s=0.001)
    link = Link(spec, str(tmp_path / "link")) if linked else None
    with connected(link) as (a, b):
        sent = [random_bytes(BIG, 1), random_bytes(BIG, 2)]
        for end, payload in zip((a, b), sent, strict=True):
            end.send(control(BIG, epoch=0), payload, deadline=soon())
        for end, payload in zip((b, a), sent, strict=True):
            into = bytearray(BIG)
            end.receive(control(BIG, epoch=0), memoryview(into), deadline=soon())
            assert into == payload


def test_a_queue_of_two_bounds_what_is_in_flight():
    with connected() as (a, _):
        payload, one = random_bytes(HUGE), control(HUGE, epoch=0)
        for _ in range(QUEUE_DEPTH + 1):  # one in the sender's hands, two in the queue
            a.send(one, payload, deadline=soon())
        with pytest.raises(DeadlineExceeded, match="queue is full"):
            a.send(one, payload, deadline=monotonic() + 0.2)


def test_done_is_called_when_the_payload_is_free_again():
    done = threading.Event()
    with connected() as (a, b):
        sent = random_bytes(HUGE)
        payload = bytearray(sent)
        a.send(control(HUGE, epoch=0), memoryview(payload), deadline=soon(), done=done.set)
        assert not done.is_set()  # the socket cannot have taken all of it
        into = bytearray(HUGE)
        b.receive(control(HUGE, epoch=0), memoryview(into), deadline=soon())
        a.flush(soon())
        assert done.is_set()
        payload[:] = bytes(HUGE)
        assert into == sent


def test_a_stale_frame_is_counted_and_never_delivered():
    now = frame()
    with connected() as (a, b):
        for tag in (replace(TAG, epoch=1), replace(TAG, token=1)):
            a.send(frame(tag=tag), memoryview(b"old." * 16), deadline=soon())
        a.send(now, memoryview(b"now." * 16), deadline=soon())
        into = bytearray(now.length)
        b.receive(now, memoryview(into), deadline=soon())
        assert into == b"now." * 16
        assert b.traffic.stale == 2


def test_nothing_but_stale_frames_is_an_error():
    old = frame(tag=replace(TAG, epoch=0))
    with connected() as (a, b):
        for _ in range(MAX_STALE):
            a.send(old, memoryview(bytes(old.length)), deadline=soon())
        with pytest.raises(FrameRejected, match="stale"):
            b.receive(frame(), memoryview(bytearray(64)), deadline=soon())


WRONG = {
    "token": replace(TAG, token=9),
    "epoch": replace(TAG, epoch=3),
    "request": replace(TAG, request="another"),
    "microbatch": replace(TAG, microbatch=1),
}


def wrong_frames() -> dict[str, Frame]:
    right = frame()
    others = {name: frame(tag=tag) for name, tag in WRONG.items()}
    others["edge"] = frame(edge=1)
    others["dtype"] = replace(right, dtype=right.dtype + 1)
    others["kind"] = replace(right, kind=2)
    others["length"] = frame(17)
    others["metadata"] = replace(right, metadata=bytes(82))
    return others


@pytest.mark.parametrize("field", wrong_frames())
def test_any_other_frame_ends_the_connection_before_its_payload_is_read(field: str):
    sent = wrong_frames()[field]
    with connected() as (a, b):
        a.send(sent, memoryview(bytes(sent.length)), deadline=soon())
        into = bytearray(b"untouched".ljust(64))
        with pytest.raises(FrameRejected) as caught:
            b.receive(frame(), memoryview(into), deadline=soon(), tag=TAG)
        assert caught.value.field == field
        assert (caught.value.local, caught.value.peer, caught.value.edge) == ("b", "a", 0)
        assert "b <- a, edge 0, r/3/0/2: " in str(caught.value)
        assert into == b"untouched".ljust(64)
        with pytest.raises(FrameRejected):  # it stays ended
            b.receive(frame(), memoryview(into), deadline=soon())
        with pytest.raises(LiveError):
            b.send(frame(), memoryview(bytes(64)), deadline=soon())


@pytest.mark.parametrize("replayed", [0, 2])
def test_a_repeated_or_skipped_frame_is_refused(replayed: int):
    a, b = tcp_pair()
    expected, payload = frame(), bytes(64)
    a.sendall(encode(expected, 0, memoryview(payload)) + payload)
    a.sendall(encode(expected, replayed, memoryview(payload)) + payload)
    receiver = Connection(b, local="b", peer="a")
    into = memoryview(bytearray(64))
    receiver.receive(expected, into, deadline=soon())
    with pytest.raises(FrameRejected, match="sequence"):
        receiver.receive(expected, into, deadline=soon())
    receiver.close()
    a.close()


def test_a_damaged_payload_is_refused():
    a, b = tcp_pair()
    expected, payload = frame(), bytearray(64)
    head = encode(expected, 0, memoryview(payload))
    payload[5] ^= 1
    a.sendall(head + payload)
    receiver = Connection(b)
    with pytest.raises(FrameRejected, match="checksum"):
        receiver.receive(expected, memoryview(bytearray(64)), deadline=soon())
    receiver.close()
    a.close()


@pytest.mark.parametrize("sent", [0, 20, 48, 60])
def test_a_peer_that_ends_or_stops_within_a_frame(sent: int):
    expected, payload = frame(), bytes(64)
    wire = (encode(expected, 0, memoryview(payload)) + payload)[:sent]
    for ends, error in ((True, PeerClosed), (False, DeadlineExceeded)):
        a, b = tcp_pair()
        receiver = Connection(b)
        a.sendall(wire)
        if ends:
            a.close()
        with pytest.raises(error):
            receiver.receive(expected, memoryview(bytearray(64)), deadline=monotonic() + 0.2)
        receiver.close()
        a.close()


def test_a_peer_that_drips_does_not_outlast_the_deadline():
    a, b = tcp_pair()
    receiver = Connection(b)
    stop = threading.Event()
    wire = encode(frame(), 0, memoryview(bytes(64)))

    def drip() -> None:
        for byte in wire:
            if stop.wait(0.02):
                return
            a.send(bytes([byte]))

    dripping = threading.Thread(target=drip)
    dripping.start()
    with pytest.raises(DeadlineExceeded):
        receiver.receive(frame(), memoryview(bytearray(64)), deadline=monotonic() + 0.2)
    stop.set()
    dripping.join()
    receiver.close()
    a.close()


def test_a_reset_peer_fails_the_sender():
    with connected() as (a, b):
        b.close()
        with pytest.raises(PeerClosed):
            for _ in range(100):
                a.send(control(100_000, epoch=0), memoryview(bytes(100_000)), deadline=soon(5))
                a.flush(soon(5))


def test_closing_wakes_a_receiver_in_another_thread():
    with connected() as (_, b):
        failed: list[LiveError] = []

        def wait() -> None:
            try:
                b.receive(frame(), memoryview(bytearray(64)), deadline=soon(60))
            except LiveError as error:
                failed.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        b.close()
        waiting.join(10)
        assert not waiting.is_alive()
        assert [type(error) for error in failed] == [PeerClosed]


def test_the_wrong_payload_is_not_sent():
    with connected() as (a, _), pytest.raises(FrameRejected, match="length"):
        a.send(frame(), NOTHING, deadline=soon())


def test_no_thread_outlives_its_connection():
    before = threading.active_count()
    for _ in range(5):
        with connected() as (a, _b):
            a.send(control(HUGE, epoch=0), random_bytes(HUGE), deadline=soon())
            assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_unix_sockets_do_too():
    a, b = socket.socketpair()
    left, right = Connection(a), Connection(b)
    left.send(frame(), memoryview(bytes(64)), deadline=soon())
    right.receive(frame(), memoryview(bytearray(64)), deadline=soon())
    left.close()
    right.close()


@pytest.mark.parametrize("size", [2, 1000, 70_000, 300_000])
@pytest.mark.parametrize("pieces", [2, 3])
def test_a_payload_that_arrives_in_pieces_is_put_together(size: int, pieces: int):
    """TCP keeps no boundaries: each piece belongs behind the one before, whatever the size."""
    raw, received = tcp_pair()
    end, payload = Connection(received, local="b", peer="a"), random_bytes(size)
    stream = encode(control(size, epoch=0), 0, payload) + bytes(payload)
    into = bytearray(size)

    def trickle() -> None:
        step = -(-len(stream) // pieces)
        for start in range(0, len(stream), step):
            raw.sendall(stream[start : start + step])
            time.sleep(0.02)

    sending = threading.Thread(target=trickle)
    sending.start()
    try:
        end.receive(control(size, epoch=0), memoryview(into), deadline=soon())
    finally:
        sending.join()
        end.close()
        raw.close()
    assert into == payload
