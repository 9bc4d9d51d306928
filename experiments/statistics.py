"""Paired effects of fresh-process runs (§6.1): AB/BA order, paired-t interval, bootstrap.

A pair is one run of the reference plan and one of the specialized plan, each in fresh processes.
``AB`` runs the reference first, ``BA`` the specialized plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt
from random import Random
from statistics import fmean, stdev
from typing import Literal

import numpy as np
from msgspec import Struct

from experiments.ledger import Estimate

Order = Literal["AB", "BA"]

PAIRS = 6
"""Pairs of every comparison, three in each order (§6.1)."""

CONFIDENCE = 0.95
RESAMPLES = 9_999


class Pair(Struct, frozen=True, kw_only=True):
    """What a pair measured, of any positive quantity: throughput, latency, bytes."""

    order: Order
    reference: float
    specialized: float

    @property
    def effect(self) -> float:
        """``d = 100 (T_s / T_r − 1)``, percent."""
        return 100 * (self.specialized / self.reference - 1)


class Effect(Struct, frozen=True, kw_only=True):
    """All effects of a comparison, their mean, and both interval estimators, in percent."""

    effects: tuple[float, ...]
    mean: float
    paired_t: tuple[float, float]
    bootstrap: tuple[float, float]
    mean_by_order: dict[str, float]

    @property
    def positive(self) -> int:
        """How many pairs favour the specialized plan."""
        return sum(d > 0 for d in self.effects)

    @property
    def estimate(self) -> Estimate:
        """Mean and paired-t interval, as the projection comparisons report them."""
        return Estimate(mean=self.mean, ci95=self.paired_t)

    @property
    def bootstrapped(self) -> Estimate:
        """Mean and percentile-bootstrap interval, as the replica campaigns report them."""
        return Estimate(mean=self.mean, ci95=self.bootstrap)


def schedule(seed: int, pairs: int = PAIRS) -> tuple[Order, ...]:
    """An order for each pair, equally many of both, drawn before anything is measured.

    Raises:
        ValueError: pairs that do not divide among the two orders.
    """
    if pairs < 2 or pairs % 2:
        raise ValueError(f"{pairs} pairs do not divide among two orders")
    orders: list[Order] = ["AB", "BA"] * (pairs // 2)
    Random(seed).shuffle(orders)
    return tuple(orders)


def compare_pairs(pairs: Sequence[Pair], *, seed: int = 0) -> Effect:
    """Effects of pairs with both intervals; the same for the same pairs and seed.

    Raises:
        ValueError: fewer than two pairs, a pair that measured nothing, or orders out of balance.
    """
    if len(pairs) < 2:
        raise ValueError("one pair has no interval")
    if not all(
        isfinite(p.reference) and p.reference > 0 and isfinite(p.specialized) for p in pairs
    ):
        raise ValueError("a pair measured nothing")
    strata = {order: [p.effect for p in pairs if p.order == order] for order in ("AB", "BA")}
    if len(strata["AB"]) != len(strata["BA"]):
        raise ValueError(f"{len(strata['AB'])} pairs AB and {len(strata['BA'])} BA")
    effects = [p.effect for p in pairs]
    return Effect(
        effects=tuple(effects),
        mean=fmean(effects),
        paired_t=paired_t(effects),
        bootstrap=bootstrap(effects, seed=seed),
        mean_by_order={order: fmean(found) for order, found in strata.items()},
    )


def paired_t(effects: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The two-sided interval ``d̄ ± t s_d / √n`` (§6.1)."""
    from scipy import stats

    n, mean = len(effects), fmean(effects)
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * stdev(effects) / sqrt(n)
    return mean - half, mean + half


def bootstrap(
    effects: Sequence[float], *, seed: int = 0, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The percentile-bootstrap interval of the mean."""
    from scipy import stats

    found = stats.bootstrap(
        (np.asarray(effects, dtype=float),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def p95(values: Sequence[float]) -> float:
    """The 95th percentile, between order statistics as NumPy takes it."""
    return float(np.percentile(np.asarray(values, dtype=float), 95))
