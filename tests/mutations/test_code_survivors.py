"""Tests that the code mutants asked for: what the rest of the suite let through, it misses here.

Guards by their truth tables, and every plan and verdict of a broad campaign against golden
files, so that a change of a message, an index or an endpoint shows as well.
"""

from __future__ import annotations

from itertools import product

import pytest

from experiments.mutations import SOURCES, subjects
from mutations.campaign import Options, Task, generate
from mutations.subjects import Subject
from sembridge import guards as g
from sembridge.check import CHECKER, check
from sembridge.draw import describe
from sembridge.errors import BadInput
from sembridge.lowering import POLICIES, lower_valid
from sembridge.obligations import resolve, validate
from sembridge.plan import AllGather, Broadcast, Part, Send
from sembridge.state import Holding, disjoint_cover, overlaps
from tests.core.build import contract, plan

TRUTH = (False, True)
SETS = tuple(frozenset(s) for s in ("", "a", "b", "ab", "abc"))


def test_guards_of_single_values():
    for a, b in product("abc", repeat=2):
        same = "".join([b])  # equal, and not the same object where it is longer
        assert g.crosses(a, same) is (a != b)
        assert g.inside(a, same) is (a == b)
        assert g.registered(a, same) is (a == b)
    assert g.registered("".join(["su", "m"]), "".join(["s", "um"])) is True


def test_guards_of_truth_values():
    for a, b in product(TRUTH, repeat=2):
        assert g.final(a, b) is (a and b)
        assert g.reassembled(a, b) is (a and b)
        assert g.outstanding(a) is (not a)


def test_guards_of_sets():
    for a, b in product(SETS, repeat=2):
        assert g.exactly(a, frozenset(b)) is (a == b)
        assert g.substitutable(a, b) is (a <= b)
        for owners, reduced in product(SETS, TRUTH):
            wanted = a <= owners and (reduced or b <= owners)
            assert g.issued_by_owner(a, b, owners, reduced) is wanted


def _chosen() -> list[Subject]:
    """Subjects of every obligation and surface, at home, apart, spare, in two and three domains."""
    parts = ("tp2.d2.v0", "tp2.d1.v2", "tp4.d3.v2", "tp2.home", "tp3.spare", "tp4.d3", "tp2.d1")
    named = [s for source in ("matrix", "family") for s in subjects(source).values()]
    return [s for s in named if s.contract.name.endswith(parts)] + [*subjects("edges").values()]


def test_violations_are_as_recorded(golden):
    lines: list[str] = []
    for subject in _chosen():
        for mutant in generate(Task(subject=subject, options=Options(limit=6))):
            try:
                report = check(mutant.contract, mutant.plan)
            except BadInput as error:
                lines.append(f"{mutant.id}: {error}")
                continue
            lines.append(f"{mutant.id}: {report.verdict} {' '.join(map(str, report.footprint))}")
            lines += [f"  {v.rule} {v.op} {v.endpoint}: {v.message}" for v in report.violations]
    golden("mutations/violations.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("source", SOURCES)
def test_plans_are_as_recorded(golden, source):
    lines: list[str] = []
    for edge in SOURCES[source]():
        ob = resolve(edge)
        assert not validate(ob)
        for policy in POLICIES.values():
            lowered, report = lower_valid(ob, policy)
            lines.append(f"{edge.name} {policy.name}: {' '.join(map(str, report.footprint))}")
            lines += [f"  {describe(ob, op)}" for op in lowered.ops]
    golden(f"mutations/plans-{source}.txt", "\n".join(lines) + "\n")


def _slices(*spans: tuple[int, int]) -> Holding:
    held = Holding(True, frozenset("p"), frozenset("p"), False, [])
    for span in spans:
        held.add(span, Holding(True, frozenset("p"), frozenset("p")))
    return held


def _elements(held: Holding, elements: int) -> set[int]:
    return {i for start, stop in held.pieces for i in range(start, stop)} & set(range(elements))


SPANS = [(a, b) for a in range(5) for b in range(a, 5)]
HOLDINGS = [
    (),
    ((0, 1),),
    ((1, 3),),
    ((0, 2), (2, 4)),
    ((0, 1), (3, 4)),
    ((2, 3), (0, 1)),
    ((1, 2), (2, 3), (3, 4)),
]


@pytest.mark.parametrize("spans", HOLDINGS)
def test_slices_overlap_and_cover_element_by_element(spans):
    held = _slices(*spans)
    there = _elements(held, 4)
    assert held.size == len(there)
    assert held.pieces == sorted(held.pieces)
    for span in SPANS:
        wanted = set(range(*span))
        assert held.covers(span) is (wanted <= there)
        assert overlaps(held, span) is (not wanted or bool(wanted & there))
    assert held.covers(None) is False
    assert overlaps(held, None) is True


def test_a_whole_covers_and_overlaps_everything():
    whole = Holding(True, frozenset("p"), frozenset("p"))
    assert all(whole.covers(span) and overlaps(whole, span) for span in [*SPANS, None])


def test_empty_slices_leave_no_piece():
    held = _slices((2, 2))
    assert (held.pieces, held.size) == ([], 0)


def test_disjoint_covers_element_by_element():
    for a, b in product(HOLDINGS, repeat=2):
        held = [_slices(*a), _slices(*b)]
        counts = [sum(i in _elements(h, 4) for h in held) for i in range(4)]
        assert disjoint_cover(held, 4) is (counts == [1] * 4)
    whole = Holding(True, frozenset("p"), frozenset("p"))
    assert disjoint_cover([whole], 4)
    assert not disjoint_cover([whole, _slices((0, 1))], 4)
    assert not disjoint_cover([whole, whole], 4)
    assert not disjoint_cover([], 4)
    assert disjoint_cover([_slices((2, 2))], 0)


def test_a_slice_takes_over_incompleteness_sources_and_issuers():
    held = _slices((0, 1))
    held.add((1, 2), Holding(False, frozenset("q"), frozenset("r")))
    assert (held.complete, held.sources, held.issuers) == (False, {"p", "q"}, {"p", "r"})
    held.add((2, 3), Holding(True, frozenset("s"), frozenset("t")))
    assert (held.complete, held.sources, held.issuers) == (False, set("pqs"), set("prt"))


def test_slices_that_were_broadcast_stay_at_their_root():
    """Consumers that share what a root held do not share what one of them is sent later."""
    edge = contract(tails="ttt", sources="000", shape=(6,))
    ops = (
        Send(src="p0", dst="c0", part=Part(index=0, of=2)),
        Broadcast(src="c0", dsts=("c1", "c2")),
        Send(src="p1", dst="c1", part=Part(index=1, of=2)),
        Broadcast(src="c1", dsts=("c0",)),
    )
    state = CHECKER.start(resolve(edge))
    for op in ops:
        CHECKER.step(state, op)
    held = state.held["value"]
    assert held["c1"].whole and not held["c2"].whole
    assert held["c2"].pieces == [(0, 3)]
    assert held["c2"].sources == {"p0"}
    assert held["c1"].sources == {"p0", "p1"}


def test_gathers_unite_sources_issuers_and_completeness():
    edge = contract(tails="tt", shape=(5,))
    state = CHECKER.start(resolve(edge))
    for j in range(2):
        CHECKER.step(state, Send(src=f"p{j}", dst=f"c{j}", part=Part(index=j, of=2)))
    CHECKER.step(state, AllGather(members=("c0", "c1")))
    for c in ("c0", "c1"):
        held = state.held["value"][c]
        assert held.whole and held.complete
        assert held.sources == held.issuers == {"p0", "p1"}
    assert check(edge, plan()).violations[0].rule == "coverage"
