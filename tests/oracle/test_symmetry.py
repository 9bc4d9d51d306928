"""Orbits of contracts under renaming: each once, and together every named contract."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from oracle.family import cells, members, producer_sides
from oracle.program import BOUNDS, Bounds
from oracle.symmetry import Producers, partitions, renamed, renumbered, sketches, stabilizer
from sembridge.obligations import resolve, validate

SMALL = Bounds(producers=2, demanded=3, domains=2)


def named(n: int, consumers: int, domains: int) -> int:
    """Source maps times domain partitions of all endpoints, counted one by one."""
    total = 0
    for count in range(1, consumers + 1):
        places = [p for p in partitions(n + count) if len(set(p[n:])) <= domains]
        total += len(places) * n**count
    return total


@pytest.mark.parametrize(
    ("n", "consumers", "domains"), [(1, 3, 3), (2, 3, 2), (3, 2, 2), (3, 3, 3)]
)
def test_orbits_add_up_to_all_named_contracts(n: int, consumers: int, domains: int) -> None:
    sides = [Producers(p, None, ()) for p in partitions(n)]
    orbits = [
        sketch.orbit
        for side in sides
        if stabilizer(side) is not None
        for sketch in sketches(side, consumers=consumers, domains=domains)
    ]
    assert sum(orbits) == named(n, consumers, domains)


def test_every_producers_side_has_one_canonical_form() -> None:
    sides = {
        Producers(d, c, o)
        for d, c in product(partitions(3), partitions(3))
        for o in ((), (0,), (1, 2))
    }
    for side in sides:
        images = {renamed(side, perm) for perm in permutations(range(3))}
        assert sum(stabilizer(image) is not None for image in images) == 1


def test_partitions_number_blocks_as_they_occur() -> None:
    assert [len(list(partitions(n))) for n in range(6)] == [1, 1, 2, 5, 15, 52]
    assert all(renumbered(p) == p for p in partitions(4))


def test_sketches_refuse_a_form_that_is_not_canonical() -> None:
    with pytest.raises(ValueError, match="not canonical"):
        list(sketches(Producers((0, 1, 1), None, ()), consumers=1, domains=1))


def test_family_members_are_valid_bounded_and_distinct() -> None:
    parts = cells(SMALL)
    assert len({cell.key for cell in parts}) == len(parts)
    names, contents = set(), set()
    for cell in parts:
        for contract, orbit in members(cell, SMALL):
            ob = resolve(contract)
            assert validate(ob) == []
            SMALL.check(ob)
            assert orbit >= 1
            names.add(contract.name)
            contents.add((cell.key, contract.consumers))
    assert len(names) == len(contents)
    assert {placement for placement, _ in producer_sides(BOUNDS)} == {
        "replicate",
        "shard",
        "partial",
    }
