"""Staging buffers: allocated on demand, returned to a bounded cache (§5.2).

Tensors of a device cross through host memory, pinned where the device needs it. Host tensors are
sent from, and received into, where they lie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from threading import Lock

CACHE_BYTES = 512 * 2**20
"""Most bytes that a process keeps for later use."""


def pageable(size: int) -> memoryview:
    """Ordinary host memory."""
    return memoryview(bytearray(size))


class StagingCache:
    """Buffers by size class (powers of two from 4 KiB), for all connections of a process."""

    def __init__(
        self,
        allocate: Callable[[int], memoryview] = pageable,
        *,
        limit: int = CACHE_BYTES,
    ) -> None:
        self._allocate = allocate
        self._limit = limit
        self._free: dict[int, list[memoryview]] = defaultdict(list)
        self._lock = Lock()
        self.cached = 0
        self.high_water = 0
        self._used = 0

    def take(self, size: int) -> memoryview:
        """A buffer of at least ``size`` bytes; give it back when its bytes are gone."""
        rounded = 1 << max(12, (size - 1).bit_length())
        with self._lock:
            self._used += rounded
            self.high_water = max(self.high_water, self._used)
            if self._free[rounded]:
                self.cached -= rounded
                return self._free[rounded].pop()
        return self._allocate(rounded)

    def give(self, buffer: memoryview) -> None:
        """Return what :meth:`take` gave; what the cache cannot keep is freed."""
        size = buffer.nbytes
        with self._lock:
            self._used -= size
            if self.cached + size <= self._limit:
                self._free[size].append(buffer)
                self.cached += size
