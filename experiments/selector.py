"""Equation 7's choice against the better plan as measured (§8.2), for every pair of the campaigns.

α and β come from bursts of messages over the link, L from timing each plan's projections and
native collectives; then both plans of a pair exchange decode steps in AB/BA blocks, of which the
median step counts. Nothing of what is compared enters the calibration. The model's own
computation is left out: it is the same under both plans, and only dilutes their difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from experiments.engine import LIVE, live_installed
from experiments.exchange import HEAD, Orders, launch_orders, step_edges
from experiments.live import CAMPAIGNS, link_of
from experiments.pairs import Comparison
from experiments.registry import Result, Settings, Table, Volatile, experiment
from experiments.statistics import Effect, Pair, compare_pairs, schedule
from sembridge.footprint import Footprint, footprint_of
from sembridge.obligations import resolve_valid
from sembridge.plan import Plan
from sembridge.selector import Candidate, Fabric, better

STEPS = 6
"""Steps of a block."""

BURSTS = ((4, 1), (4, 8), (65_536, 1), (65_536, 4), (1_048_576, 1))


def calibrate(bursts: Mapping[tuple[int, int], Sequence[float]]) -> Fabric:
    """Least squares of ``T = c + α n + n size / β`` over the median time of each burst."""
    rows = [[1.0, count, count * size] for size, count in bursts]
    times = [median(times) for times in bursts.values()]
    # Relative errors count: a microsecond matters in a small burst, and not in a large one.
    weights = 1 / np.asarray(times)
    found, *_ = np.linalg.lstsq(np.asarray(rows) * weights[:, None], np.asarray(times) * weights)
    _, alpha, per_byte = (float(x) for x in found)
    return Fabric(alpha_s=max(alpha, 0.0), beta_bytes_per_s=1 / max(per_byte, 1e-15))


def candidate(fabric: Fabric, name: str, edges: Sequence[Any], local_s: float) -> Candidate:
    """A step's plans as one candidate: bytes, frames and local cost summed over the edges."""
    prints = [footprint_of(resolve_valid(contract), plan.ops) for contract, plan in edges]
    footprint = Footprint(
        **{f: sum(getattr(one, f) for one in prints) for f in Footprint.__struct_fields__}
    )
    return Candidate(
        name=name,
        plan=Plan(contract=name, tag=None, ops=()),
        footprint=footprint,
        transfer_s=footprint.cross_bytes / fabric.beta_bytes_per_s,
        startup_s=footprint.cross_startups * fabric.alpha_s,
        local_s=local_s,
    )


def local_seconds(ranks: Mapping[str, Any], arm: int) -> float:
    """L of an arm: each kind of local work as its slowest rank does it."""
    slowest: dict[str, float] = {}
    for rank in ranks.values():
        for kind, seconds in rank["local"][arm].items():
            slowest[kind] = max(slowest.get(kind, 0.0), seconds)
    return sum(slowest.values())


def verdict(low: float, high: float) -> str:
    """Which plan is better by an interval of the specialized one's gain."""
    return "specialized" if low > 0 else "reference" if high < 0 else "neither"


def compare(comparison: Comparison, seed: int) -> dict[str, Any]:
    """Calibrate, predict and measure one comparison in one set of fresh processes."""
    asks = (comparison.reference, comparison.specialized)
    arms = tuple(tuple(step_edges(ask)) for ask in asks)
    orders = schedule(seed)
    blocks = tuple(arm for order in orders for arm in ((0, 1) if order == "AB" else (1, 0)))
    ranks = launch_orders(
        Orders(arms=arms, blocks=blocks, steps=STEPS, seed=seed, bursts=BURSTS), asks[0]
    )
    lead = ranks[f"{HEAD}/0"]
    fabric = calibrate(dict(zip(BURSTS, lead["bursts"], strict=True)))
    reference, specialized = (
        candidate(fabric, name, edges, local_seconds(ranks, n))
        for n, (name, edges) in enumerate(zip(("reference", "specialized"), arms, strict=True))
    )
    step = [median(times) for times in lead["seconds"]]
    pairs: list[Pair] = []
    for n, order in enumerate(orders):
        one, other = step[2 * n], step[2 * n + 1]
        r, s = (one, other) if order == "AB" else (other, one)
        pairs.append(Pair(order=order, reference=1 / r, specialized=1 / s))
    return {
        "comparison": comparison.name,
        "model": asks[0].model,
        "tp": asks[0].tp,
        "rows": asks[0].concurrency,
        "reference": reference,
        "specialized": specialized,
        "fabric": fabric,
        "same": [plan.ops for _, plan in arms[0]] == [plan.ops for _, plan in arms[1]],
        "effect": compare_pairs(pairs, seed=seed),
        "step_ms": [
            1e3 * median(s for s, b in zip(step, blocks, strict=True) if b == n) for n in (0, 1)
        ],
    }


def row(campaign: str, found: dict[str, Any]) -> dict[str, Any]:
    """A comparison as a raw row: terms of equation 7 in ms, prediction, measurement."""
    r, s = found["reference"], found["specialized"]
    effect: Effect = found["effect"]
    terms = {
        "bytes": 1e3 * (r.transfer_s - s.transfer_s),
        "frames": 1e3 * (r.startup_s - s.startup_s),
        "local": 1e3 * (r.local_s - s.local_s),
    }
    predicted = "specialized" if better(found["fabric"], s, r) else "reference"
    if found["same"]:
        predicted = "neither"
    measured = verdict(*effect.paired_t)
    agree = "undecided" if measured == "neither" else "no"
    return {
        "campaign": campaign,
        **{k: found[k] for k in ("comparison", "model", "tp", "rows")},
        "alpha_us": 1e6 * found["fabric"].alpha_s,
        "beta_mb_per_s": found["fabric"].beta_bytes_per_s / 1e6,
        **{f"saved_{term}_ms": ms for term, ms in terms.items()},
        "predicted_saving_ms": sum(terms.values()),
        "reference_step_ms": found["step_ms"][0],
        "specialized_step_ms": found["step_ms"][1],
        "gain_percent": effect.mean,
        "gain_low": effect.paired_t[0],
        "gain_high": effect.paired_t[1],
        "predicted": predicted,
        "measured": measured,
        "agree": "yes" if predicted == measured else agree,
        "decided_by": max(terms, key=lambda term: abs(terms[term])),
    }


@experiment(
    "selector", "Equation 7's choice against the better plan as measured (§8.2)", quick=False
)
def selector(settings: Settings) -> Result:
    """Predict and measure each distinct pair of plans of the live campaigns."""
    if not live_installed():
        return Result(name="selector", how="not run", not_run=LIVE)
    work = [(name, c) for name, campaign in CAMPAIGNS.items() for c in campaign.comparisons]
    rows: list[dict[str, Any]] = []
    for done, (campaign, comparison) in enumerate(work):
        if settings.progress:
            settings.progress(done, len(work), "selector")
        rows.append(row(campaign, compare(comparison, settings.seed)))
    return Result(
        name="selector",
        how="decode steps exchanged without the model's computation, real widths and vocabularies, "
        "two gloo domains on CPU over the emulated link; six AB/BA blocks in one set of processes",
        volatile=Volatile(
            tables=(table(rows),),
            records=tuple(rows),
            notes={"link": link_of([c for _, c in work])},
        ),
    )


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Every pair: the terms of equation 7, the choice, and the measurement."""
    decided = [r for r in rows if r["measured"] != "neither"]
    right = sum(r["agree"] == "yes" for r in decided)
    shown: list[tuple[Any, ...]] = []
    for r in rows:
        gain = f"{r['gain_percent']:.1f} [{r['gain_low']:.1f}, {r['gain_high']:.1f}]"
        agree = f"no: {r['decided_by']}" if r["agree"] == "no" else r["agree"]
        terms = [f"{r[f'saved_{term}_ms']:.2f}" for term in ("bytes", "frames", "local")]
        place = [r[k] for k in ("campaign", "comparison", "model", "tp", "rows")]
        shown.append((*place, *terms, r["predicted"], gain, r["measured"], agree))
    return Table(
        title="Equation 7 against measurement, one decode step",
        columns=(
            *("campaign", "comparison", "model", "TP", "rows"),
            *("bytes, ms", "frames, ms", "local, ms"),
            *("predicted", "measured gain, %", "measured", "agree"),
        ),
        rows=tuple(shown),
        note=f"The choice is right in {right} of the {len(decided)} pairs that the measurement "
        "decides; the interval of the others contains zero. Columns in ms are what the "
        "specialized plan saves; where the choice is wrong, the largest term is named.",
    )
