"""The link between two domains, emulated in the carrier where it cannot be shaped for real.

One token bucket for each direction is shared by all lanes of a domain, across processes: a mapped
file holds the time at which the link is next free. A frame's bytes leave when the bucket has sent
what came before them, and arrive half a round trip later; senders wait for the arrival itself.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from threading import Lock
from time import monotonic_ns, sleep
from typing import Annotated

from msgspec import Meta, Struct

_CLOCK = struct.Struct("<q")
SPIN_NS = 60_000
"""How long before an arrival the sleeping ends and the spinning begins."""

CHUNK = 128 * 1024
"""Bytes that arrive together."""


class LinkSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rate in bit/s (None: as fast as the machine goes) and round-trip time in seconds."""

    rate_bit_s: Annotated[float, Meta(gt=0, le=1e15)] | None = None
    rtt_s: Annotated[float, Meta(ge=0, le=60)] = 0.0

    @property
    def shaped(self) -> bool:
        """Whether there is anything to emulate."""
        return self.rate_bit_s is not None or self.rtt_s > 0


class Link:
    """One direction of a link. ``path`` names the file that its senders share."""

    def __init__(self, spec: LinkSpec, path: str) -> None:
        self.spec = spec
        self._delay = int(spec.rtt_s * 1e9 / 2)
        self._ns_per_byte = 0.0 if spec.rate_bit_s is None else 8e9 / spec.rate_bit_s
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, _CLOCK.size)
        self._map = mmap.mmap(self._file, _CLOCK.size)
        self._lock = Lock()

    def reserve(self, size: int) -> int:
        """Claim the link for ``size`` bytes; the time (ns, monotonic) at which the first leaves."""
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                (free,) = _CLOCK.unpack_from(self._map)
                start = max(free, monotonic_ns())
                _CLOCK.pack_into(self._map, 0, start + int(size * self._ns_per_byte))
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
        return start

    def arrivals(self, start: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Pieces (from, to, arrival in ns) of ``size`` bytes that leave from ``start`` on."""
        sent = 0
        while sent < size:
            end = min(sent + CHUNK, size)
            yield sent, end, start + int(end * self._ns_per_byte) + self._delay
            sent = end

    def close(self) -> None:
        """Let go of the shared file."""
        self._map.close()
        os.close(self._file)


def wait_until(moment_ns: int) -> None:
    """Sleep, then spin: sleeping alone overshoots by more than a short link's delay."""
    while (left := moment_ns - monotonic_ns()) > SPIN_NS:
        sleep((left - SPIN_NS) / 1e9)
    while monotonic_ns() < moment_ns:
        pass
