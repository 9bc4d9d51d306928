"""Random corrupt streams against a real receiving connection, and what they cost it."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from msgspec import Struct, field

from mutations.frames import PATIENCE_S, Exchange, Fate, Stream, exchanges, receive

FRAMES = 10_000
"""Corrupt streams in a campaign."""

STAYS_OPEN = 200
"""One stream in so many stays open, and has to be given up at the deadline."""

LATE_S = 1.0
"""By how much a receiver may miss its deadline, on a busy machine."""

MEMORY = 4 * 2**20
"""Bytes that may be allocated at one time: a receiver and some garbage, no length off the wire."""


class Campaign(Struct, kw_only=True):
    """What became of the corrupt streams, by reason, and what they left behind.

    ``intact`` are those whose damage came after the last frame that was due.

    ``delivered`` counts frames that were intact and handed out, ``wrong`` streams of which a
    damaged one was; ``late`` streams outlasted the deadline. ``peak_bytes`` is the most that
    Python allocated at one time, ``threads`` and ``descriptors`` are what was left.
    """

    streams: int = 0
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    delivered: int = 0
    stale: int = 0
    wrong: int = 0
    late: int = 0
    slowest_s: float = 0.0
    peak_bytes: int = 0
    threads: int = 0
    descriptors: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing wrong was delivered, nothing hung, and nothing is left."""
        left = self.wrong or self.late or self.threads or self.descriptors
        return not left and self.peak_bytes < MEMORY

    def add(self, fate: Fate, seconds: float) -> None:
        """Count one more stream."""
        reason = fate.reason or "intact"
        self.streams += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.delivered += fate.delivered
        self.stale += fate.stale
        self.wrong += fate.wrong
        self.late += seconds > PATIENCE_S + LATE_S
        self.slowest_s = max(self.slowest_s, seconds)


def corrupt(data: bytes, rng: random.Random) -> bytes:
    """A stream after some random edits: never the one that was given."""
    while True:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            _EDITS[rng.randrange(len(_EDITS))](changed, rng)
        if bytes(changed) != data:
            return bytes(changed)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.choice((1, 2, 4, 8))] = rng.randbytes(rng.choice((1, 2, 4, 8)))


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.randint(1, 64))


def _delete(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.randint(1, 64)]


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = data[at : at + rng.randint(1, 200)]


def _move(data: bytearray, rng: random.Random) -> None:
    at, size = rng.randrange(len(data) + 1), rng.randint(1, 64)
    piece = data[at : at + size]
    del data[at : at + size]
    to = rng.randrange(len(data) + 1)
    data[to:to] = piece


def _garbage(data: bytearray, rng: random.Random) -> None:
    data[:] = rng.randbytes(rng.randint(0, 400))


_EDITS = (_flip, _flip, _overwrite, _insert, _delete, _truncate, _repeat, _move, _garbage)


def fuzz(
    streams: int = FRAMES,
    seed: int = 0,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Campaign:
    """Receive so many corrupt streams, the same ones for the same seed."""
    rng = random.Random(seed)
    subjects = list(exchanges().values())
    found = Campaign()
    threads, descriptors = threading.active_count(), _descriptors()
    tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        for i in range(streams):
            subject = rng.choice(subjects)
            data = corrupt(_late(subject) if not i % 5 else subject.valid, rng)
            start = monotonic()
            fate = receive(subject, Stream(data, stays=not (i + 1) % STAYS_OPEN))
            found.add(fate, monotonic() - start)
            if progress is not None and not found.streams % 100:
                progress(found.streams, streams)
        found.peak_bytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        if not tracing:
            tracemalloc.stop()
    found.reasons = dict(sorted(found.reasons.items()))
    found.threads = threading.active_count() - threads
    found.descriptors = _descriptors() - descriptors
    return found


def _late(exchange: Exchange) -> bytes:
    """The valid stream after a frame of an earlier epoch."""
    stale = exchange.wire(0, epoch=exchange.frames[0].epoch - 1)
    return stale + exchange.wire(0, sequence=1) + exchange.wire(1, sequence=2)


def _descriptors() -> int:
    """Open descriptors of this process; 0 where the system does not say."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0
