"""Weakened checkers: each is noticed, or proved redundant; none is weaker than it says."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.mutations import subject_of
from mutations.campaign import KILLS, Class, mutant_of
from mutations.checkers import (
    CONTRACT_CONDITIONS,
    REDUNDANT,
    WEAKENINGS,
    accepts,
    broken,
    dropping,
    smallest_cover,
    weakened,
)
from mutations.report import checkers_noticed, necessary_rules, records_of
from oracle.samples import draw_pairs
from sembridge import obligations
from sembridge.obligations import resolve, validate
from sembridge.rules import RULES
from tests.mutations.samples import some_campaign, some_subjects


def records():
    return records_of(some_campaign())


def rejected():
    """A tenth of the rejected mutants under valid contracts."""
    picked = [r for r in records() if r.outcome in (*KILLS, Class.OVERSTRICT)][::10]
    for r in picked:
        mutant = mutant_of(r.id, subject_of(r.id))
        ob = resolve(mutant.contract)
        if not validate(ob):
            yield r, ob, mutant.plan


@pytest.mark.parametrize("noticed", checkers_noticed(records()), ids=lambda n: n.checker)
def test_every_weakened_checker_is_noticed_or_redundant(noticed):
    assert noticed.standing != "untested"
    assert (noticed.standing == "redundant") == (noticed.checker in REDUNDANT)


def test_a_dropped_rule_accepts_what_breaks_nothing_else():
    names = {rule.id: rule.name for rule in RULES}
    weaker = {rule.id: dropping(rule) for rule in RULES}
    for r, ob, plan in rejected():
        ids = broken(ob, plan)
        assert tuple(sorted(ids)) == r.broken
        assert sorted({names[i] for i in ids}) == list(r.rules)
        for rule_id, checker in weaker.items():
            assert accepts(ob, plan, checker) == (ids <= {rule_id})


@pytest.mark.parametrize("name", WEAKENINGS)
def test_a_weakened_checker_still_accepts_unmutated_plans(name):
    with weakened(WEAKENINGS[name]):
        for subject in some_subjects():
            assert accepts(resolve(subject.contract), subject.plan)


@pytest.mark.parametrize("name", REDUNDANT)
def test_no_random_pair_tells_a_redundant_weakening(name):
    for contract, plan in draw_pairs(11, 4000):
        ob = resolve(contract)
        if not accepts(ob, plan):
            with weakened(WEAKENINGS[name]):
                assert not accepts(ob, plan)


def test_weakening_ends_with_its_context():
    before = dict(vars(obligations)), [validate(resolve(s.contract)) for s in some_subjects()]
    for weakening in WEAKENINGS.values():
        with weakened(weakening):
            pass
    assert (
        dict(vars(obligations)),
        [validate(resolve(s.contract)) for s in some_subjects()],
    ) == before
    assert all(not accepts(ob, plan) for _, ob, plan in rejected())


def test_every_contract_rule_and_condition_is_weakened():
    names = {name for name, _ in obligations.CONTRACT_RULES}
    assert names <= set(WEAKENINGS)
    assert CONTRACT_CONDITIONS.keys() <= names
    for name, words in CONTRACT_CONDITIONS.items():
        assert all(f"{name} ({w})" in WEAKENINGS for w in words)


def test_the_smallest_set_of_rules_kills_every_killed_mutant():
    cover = set(necessary_rules(records()))
    kills = [set(r.broken) for r in records() if r.outcome in KILLS]
    assert all(cover & ids for ids in kills)
    for rule in cover:
        assert any(not (cover - {rule}) & ids for ids in kills), f"{rule} is not needed"


@given(st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1), max_size=8))
def test_smallest_cover_is_smallest(kills):
    cover = smallest_cover(kills)
    assert all(k & set(cover) for k in kills)
    for fewer in combinations("abcdef", max(len(cover) - 1, 0)):
        if len(fewer) < len(cover):
            assert not all(k & set(fewer) for k in kills)
