"""What a link gives: its rate and its round trip, measured between two launched ranks.

The probe uses the carrier, as every run does, so that it sees what a run sees: namespaces, the
emulator, TLS.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, perf_counter
from typing import Any

from msgspec import Struct

from sembridge.live.executor import Rank
from sembridge.live.frame import control
from sembridge.live.launch import UNSHAPED, Side, launch
from sembridge.live.link import LinkSpec
from sembridge.live.netns import Namespaces

ECHOES = 200
ECHO_BYTES = 4
BLOCK = 2**20
BLOCKS = 32


class Measured(Struct, frozen=True, kw_only=True):
    """Payload bits a second in one direction; round trip of four bytes, least and median."""

    rate_bit_s: float
    rtt_min_s: float
    rtt_p50_s: float


def sides_of(link: Namespaces, near: str = "near", far: str = "far", lanes: int = 1) -> list[Side]:
    """The two sides of a launch at the two ends of a link."""
    return [
        Side(domain=name, lanes=lanes, namespace=end.namespace, host=end.host, port=end.port)
        for name, end in ((near, link.near), (far, link.far))
    ]


def measure(sides: Sequence[Side] | None = None, *, link: LinkSpec = UNSHAPED) -> Measured:
    """Probe the link between two sides (of one lane each, on loopback by default).

    Raises:
        LiveError: the probe could not be finished.
    """
    sides = sides or [Side(domain="near", lanes=1), Side(domain="far", lanes=1)]
    names = [f"{side.domain}/0" for side in sides]
    run = launch(sides, "sembridge.live.probe:probe", {"names": names}, link=link)
    return Measured(**run.results[names[0]])


def probe(rank: Rank, arguments: dict[str, Any]) -> dict[str, float] | None:
    """A rank's part: the first asks and takes the time, the other answers."""
    first, second = arguments["names"]
    if rank.name == first:
        return _ask(rank, second)
    connection = rank.connection(first)
    for _ in range(ECHOES):
        rank.tell(first, rank.hear(first, ECHO_BYTES))
    block = memoryview(bytearray(BLOCK))
    for _ in range(BLOCKS):
        connection.receive(control(BLOCK, epoch=0), block, deadline=monotonic() + rank.deadline_s)
    rank.tell(first, bytes(ECHO_BYTES))
    return None


def _ask(rank: Rank, peer: str) -> dict[str, float]:
    trips: list[float] = []
    for _ in range(ECHOES):
        start = perf_counter()
        rank.tell(peer, bytes(ECHO_BYTES))
        rank.hear(peer, ECHO_BYTES)
        trips.append(perf_counter() - start)
    trips.sort()
    connection, block = rank.connection(peer), memoryview(bytearray(BLOCK))
    start = perf_counter()
    for _ in range(BLOCKS):
        connection.send(control(BLOCK, epoch=0), block, deadline=monotonic() + rank.deadline_s)
    rank.hear(peer, ECHO_BYTES)
    seconds = perf_counter() - start - trips[len(trips) // 2] / 2
    return {
        "rate_bit_s": 8 * BLOCK * BLOCKS / seconds,
        "rtt_min_s": trips[0],
        "rtt_p50_s": trips[len(trips) // 2],
    }
