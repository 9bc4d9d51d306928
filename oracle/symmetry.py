"""Contracts up to renaming: canonical forms, and how many named contracts each stands for.

An endpoint's name means nothing to the checker, the lowerer or the footprint. So the bounded
family is generated as sketches (numbers for endpoints and domains), one of each orbit under
renaming producers, consumers and domains.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations_with_replacement, permutations
from math import factorial, prod
from typing import NamedTuple

Partition = tuple[int, ...]
"""The block of each element, blocks numbered as they first occur: (0, 0, 1)."""

Perm = tuple[int, ...]
"""The new number of each element."""


class Producers(NamedTuple):
    """The producers' side: native domains, replica classes (None: no such fact), owners."""

    domains: Partition
    classes: Partition | None
    owners: tuple[int, ...]


class Sketch(NamedTuple):
    """A contract without names. A consumer is (domain, mapped producer).

    Domains are numbered on from the producers'; ``orbit`` is how many ways there are to name
    the endpoints that tell contracts apart.
    """

    producers: Producers
    consumers: tuple[tuple[int, int], ...]
    orbit: int


def partitions(n: int) -> Iterator[Partition]:
    """Set partitions of n elements.

    >>> list(partitions(2))
    [(0, 0), (0, 1)]
    """
    if n == 0:
        yield ()
        return
    for head in partitions(n - 1):
        for block in range(max(head, default=-1) + 2):
            yield (*head, block)


def renumbered(blocks: Partition) -> Partition:
    """Blocks numbered as they first occur.

    >>> renumbered((2, 0, 2))
    (0, 1, 0)
    """
    numbers: dict[int, int] = {}
    return tuple([numbers.setdefault(b, len(numbers)) for b in blocks])


def _permuted(blocks: Partition, perm: Perm) -> Partition:
    moved = [0] * len(blocks)
    for old, new in enumerate(perm):
        moved[new] = blocks[old]
    return renumbered(tuple(moved))


def renamed(producers: Producers, perm: Perm) -> Producers:
    """The same producers' side under other numbers."""
    return Producers(
        _permuted(producers.domains, perm),
        None if producers.classes is None else _permuted(producers.classes, perm),
        tuple(sorted([perm[o] for o in producers.owners])),
    )


def _key(producers: Producers) -> tuple[object, ...]:
    return (producers.domains, producers.classes or (), producers.owners)


def stabilizer(producers: Producers) -> list[Perm] | None:
    """Renumberings that change nothing, or None where another numbering comes first."""
    mine, fixed = _key(producers), list[Perm]()
    for perm in permutations(range(len(producers.domains))):
        other = _key(renamed(producers, perm))
        if other < mine:
            return None
        if other == mine:
            fixed.append(perm)
    return fixed


@lru_cache(maxsize=8)
def sketches(
    producers: Producers, *, consumers: int, domains: int, sources: bool = True
) -> tuple[Sketch, ...]:
    """One sketch for each orbit of 1 to ``consumers`` consumers in at most ``domains`` domains.

    Consumers may sit in the producers' domains too. Without ``sources`` the source map is left
    out: each consumer maps to producer 0, and orbits are counted without it. ``producers`` must
    be canonical.
    """
    fixed = stabilizer(producers)
    if fixed is None:
        raise ValueError(f"not canonical: {producers}")
    found: list[Sketch] = []
    n, native = len(producers.domains), max(producers.domains) + 1
    mapped = range(n) if sources else (0,)
    for count in range(1, consumers + 1):
        kinds = [(d, p) for d in range(native + min(domains, count)) for p in mapped]
        for chosen in combinations_with_replacement(kinds, count):
            used = {d for d, _ in chosen}
            fresh = sum([d >= native for d in used])
            if len(used) > domains or any(native + i not in used for i in range(fresh)):
                continue
            same = _symmetries(chosen, fixed, producers.domains, native, fresh, sources)
            if same:
                repeats = prod([factorial(chosen.count(c)) for c in set(chosen)])
                # All renamings of endpoints, over those that change nothing.
                orbit = factorial(n) * factorial(count) // (same * repeats)
                found.append(Sketch(producers, chosen, orbit))
    return tuple(found)


def _symmetries(
    chosen: tuple[tuple[int, int], ...],
    fixed: list[Perm],
    home: Partition,
    native: int,
    fresh: int,
    sources: bool,
) -> int:
    """How many renumberings keep ``chosen``; 0 where one brings it before itself."""
    same = 0
    for perm in fixed:
        moved = [0] * native
        for old, new in enumerate(perm):
            moved[home[old]] = home[new]
        for order in permutations(range(native, native + fresh)):
            domain = (*moved, *order)
            other = tuple(sorted([(domain[d], perm[p] if sources else p) for d, p in chosen]))
            if other < chosen:
                return 0
            same += other == chosen
    return same
