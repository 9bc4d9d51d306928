"""Staging buffers come from a cache that is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sembridge.live.staging import CACHE_BYTES, StagingCache, pageable


def test_the_papers_bound():
    assert CACHE_BYTES == 512 * 2**20


@given(st.lists(st.tuples(st.integers(0, 70_000), st.booleans())), st.integers(0, 200_000))
def test_the_cache_keeps_no_more_than_its_limit(steps: list[tuple[int, bool]], limit: int):
    allocated: list[int] = []

    def allocate(size: int) -> memoryview:
        allocated.append(size)
        return pageable(size)

    cache = StagingCache(allocate, limit=limit)
    out: list[memoryview] = []
    for size, give in steps:
        if give and out:
            cache.give(out.pop())
        else:
            buffer = cache.take(size)
            assert buffer.nbytes >= size
            out.append(buffer)
        assert 0 <= cache.cached <= limit
    assert cache.high_water <= sum(allocated)
    assert len({id(b.obj) for b in out}) == len(out)  # nothing is given out twice


def test_buffers_are_used_again():
    cache = StagingCache()
    first = cache.take(5000)
    cache.give(first)
    assert cache.take(8000) is first
    assert cache.take(5000) is not first
