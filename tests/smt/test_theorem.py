"""The theorem stands, on the guards that run, and falls when one of them is dropped."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.smt import theorem
from oracle.smt.second import confirm
from oracle.smt.solver import Answer
from oracle.smt.theorem import LEMMAS, TYPED, Term, lemmas, prove_theorem, questions
from sembridge import guards
from sembridge.layout import slice_bounds
from sembridge.rules import RULES
from sembridge.state import Holding, disjoint_cover, overlaps

GUARDS = sorted(
    name
    for name, value in vars(guards).items()
    if callable(value) and getattr(value, "__module__", "") == guards.__name__
)


def test_every_lemma_stands_and_needs_the_guards_it_says_it_needs() -> None:
    for proved in prove_theorem():
        assert proved.stands, proved


def test_every_rule_of_the_checker_is_some_lemmas_guard() -> None:
    used = {rule.id for lemma in lemmas() for guard in lemma.guards for rule in guard.rules}
    assert used | {rule.id for rule in TYPED} == {rule.id for rule in RULES}
    assert used.isdisjoint({rule.id for rule in TYPED})


@pytest.mark.parametrize("name", GUARDS)
def test_the_theorem_falls_without_a_running_guard(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, name, lambda *terms: Term("true"))
    assert any(p.holds is Answer.SAT for p in prove_theorem())


@pytest.mark.parametrize("build", LEMMAS)
def test_cvc5_confirms_each_lemma_with_its_proof_checked(build: Any) -> None:
    pytest.importorskip("cvc5")
    for question in questions([build()]).values():
        assert confirm(question) is Answer.UNSAT


def test_terms_and_values_read_one_definition() -> None:
    """On booleans and sets the guards mean in Python what their terms mean to the solver."""
    assert guards.outstanding(False) is True
    assert guards.outstanding(Term("x")).text == "(xor x true)"
    assert guards.issued_by_owner({"p0"}, {"p0", "p1"}, {"p0"}, True)
    assert not guards.issued_by_owner({"p0"}, {"p0", "p1"}, {"p0"}, False)
    assert theorem.Names("(a n)").__le__(theorem.Names("(b n)")).text == (
        "(forall ((n Name)) (=> (a n) (b n)))"
    )


# The theorem speaks of sets of elements, the checker keeps intervals: they say the same.

ELEMENTS = 12
parts = st.integers(1, 15).flatmap(
    lambda of: st.tuples(st.integers(0, of - 1), st.just(of)).map(
        lambda part: slice_bounds(ELEMENTS, *part)
    )
)


def holding(pieces: list[tuple[int, int]]) -> tuple[Holding, set[int]]:
    """A holding that received the pieces that fit, and its elements."""
    held, elements = Holding(True, set(), set(), []), set[int]()
    for start, stop in pieces:
        if start < stop and elements.isdisjoint(range(start, stop)):
            held.add((start, stop), held)
            elements |= set(range(start, stop))
    return held, elements


@given(st.lists(parts, max_size=6), parts)
def test_intervals_cover_and_overlap_as_sets_do(
    pieces: list[tuple[int, int]], span: tuple[int, int]
) -> None:
    held, elements = holding(pieces)
    wanted = set(range(*span))
    assert held.covers(span) == (wanted <= elements)
    assert overlaps(held, span) == (not wanted or not wanted.isdisjoint(elements))


@given(st.lists(st.lists(parts, max_size=3), min_size=1, max_size=4), st.randoms())
def test_intervals_tile_as_sets_do(
    members: list[list[tuple[int, int]]], shuffle: random.Random
) -> None:
    shuffle.shuffle(members)
    found = [holding(pieces) for pieces in members]
    listed = sorted([e for _, elements in found for e in elements])
    assert disjoint_cover([h for h, _ in found], ELEMENTS) == (listed == list(range(ELEMENTS)))
