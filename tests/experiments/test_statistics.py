"""Paired effects and their intervals, against formulas, SciPy's own test, and properties."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.statistics import PAIRS, Pair, bootstrap, compare_pairs, paired_t, schedule

effects = st.lists(st.floats(-90, 300), min_size=2, max_size=8)
times = st.floats(0.01, 1e4)


@st.composite
def pairs(draw):
    orders = schedule(draw(st.integers(0, 99)), draw(st.sampled_from([2, 4, 6])))
    return [Pair(order=o, reference=draw(times), specialized=draw(times)) for o in orders]


def test_a_worked_example():
    ds = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    low, high = paired_t(ds)
    half = 2.5705818 * 1.8708287 / sqrt(6)  # t(0.975, 5) and the sample deviation, by table
    assert (low, high) == pytest.approx((3.5 - half, 3.5 + half), rel=1e-7)


@given(effects)
def test_the_paired_t_interval_is_scipys(ds):
    assume(max(ds) - min(ds) > 1e-3)
    theirs = stats.ttest_1samp(ds, 0).confidence_interval(0.95)
    assert paired_t(ds) == pytest.approx((theirs.low, theirs.high), rel=1e-6, abs=1e-6)


@given(effects, st.floats(-100, 100))
def test_intervals_move_with_the_effects(ds, by):
    low, high = paired_t(ds)
    assert paired_t([d + by for d in ds]) == pytest.approx((low + by, high + by), abs=1e-6)
    assert paired_t([-d for d in ds]) == pytest.approx((-high, -low), abs=1e-6)


@given(effects)
def test_more_confidence_is_wider(ds):
    low, high = paired_t(ds)
    wide_low, wide_high = paired_t(ds, confidence=0.99)
    assert wide_low <= low <= high <= wide_high


@settings(max_examples=20)
@given(effects)
def test_the_bootstrap_stays_among_the_effects_and_repeats(ds):
    low, high = bootstrap(ds, seed=3)
    assert min(ds) - 1e-9 <= low <= high <= max(ds) + 1e-9
    assert bootstrap(ds, seed=3) == (low, high)


@settings(max_examples=20)
@given(pairs(), st.floats(0.1, 10))
def test_units_do_not_matter(found, unit):
    scaled = [
        Pair(order=p.order, reference=p.reference * unit, specialized=p.specialized * unit)
        for p in found
    ]
    one, other = compare_pairs(found), compare_pairs(scaled)
    assert one.effects == pytest.approx(other.effects, rel=1e-6, abs=1e-6)
    assert one.paired_t == pytest.approx(other.paired_t, rel=1e-6, abs=1e-5)


@settings(max_examples=20)
@given(pairs())
def test_positive_pairs_are_those_where_the_specialized_plan_has_more(found):
    compared = compare_pairs(found)
    assert compared.positive == sum(p.specialized > p.reference for p in found)
    assert sum(compared.mean_by_order.values()) / 2 == pytest.approx(compared.mean, abs=1e-6)
    assert compared.estimate.mean == compared.bootstrapped.mean == compared.mean


@given(st.integers(0, 10**6))
def test_three_pairs_in_each_order(seed):
    assert Counter(schedule(seed)) == {"AB": PAIRS // 2, "BA": PAIRS // 2}
    assert schedule(seed) == schedule(seed)


def test_orders_are_shuffled():
    assert len({schedule(seed) for seed in range(40)}) > 5


@pytest.mark.parametrize("count", [0, 1, 3, -2])
def test_pairs_that_cannot_be_balanced(count):
    with pytest.raises(ValueError, match="do not divide"):
        schedule(0, count)


@pytest.mark.parametrize(
    ("orders", "reference", "message"),
    [
        (("AB",), 1.0, "one pair"),
        (("AB", "AB"), 1.0, "2 pairs AB and 0 BA"),
        (("AB", "BA"), 0.0, "measured nothing"),
        (("AB", "BA"), float("nan"), "measured nothing"),
    ],
)
def test_what_has_no_interval_is_refused(orders, reference, message):
    found = [Pair(order=o, reference=reference, specialized=1.0) for o in orders]
    with pytest.raises(ValueError, match=message):
        compare_pairs(found)
