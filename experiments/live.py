"""The live experiments: plans between two running domains, by the protocol of :mod:`pairs`.

On CPU and an emulated link the direction of an effect and the byte counts are claims; the
percentages are not. Without an engine every one of them shows as not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from experiments.engine import LIVE, engine
from experiments.ledger import Estimate
from experiments.pairs import (
    C0,
    C1,
    C5,
    L0,
    P0,
    R0,
    S0,
    S1,
    Comparison,
    Engine,
    Row,
    agreement,
    effect_table,
    effects,
    measure,
    stable_rows,
    timed_rows,
    versus,
)
from experiments.registry import Result, Settings, Table, Volatile, experiment
from experiments.statistics import PAIRS, Effect

DENSE: dict[str, Any] = {"model": "qwen3", "output_tokens": 32}
MOE: dict[str, Any] = {"model": "qwen3-moe", "tp": 2}
MINIMAX: dict[str, Any] = {"model": "minimax-m2", "tp": 2, "output_tokens": 8}

LOAD_SWEEP: tuple[Comparison, ...] = tuple(
    versus(f"minimax_c{n}", P0, R0, concurrency=n, **MINIMAX) for n in (1, 8, 16)
)
"""Figure 3's primary workload, on two lanes of a side and with shorter outputs."""
PROJECTION: tuple[Comparison, ...] = (
    versus("dense_tp4_long_output", P0, R0, tp=4, **DENSE),
    versus("moe_tp2_64_tokens", P0, R0, output_tokens=16, **MOE),
    versus("moe_tp2_256_tokens", P0, R0, output_tokens=32, **MOE),
)
FORWARD: tuple[Comparison, ...] = (
    versus("dense_tp4", S0, L0, tp=4, **DENSE),
    versus("moe_256", S0, L0, output_tokens=32, **MOE),
)
OWNER: tuple[Comparison, ...] = (
    versus("moe_64", S1, P0, output_tokens=16, **MOE),
    versus("moe_256", S1, P0, output_tokens=32, **MOE),
)
REPLICAS: tuple[Comparison, ...] = (
    versus("minimax_burst16", C5, C1, concurrency=16, **MINIMAX),
    versus("dense_tp4_long", C0, C1, tp=4, **DENSE),
    versus("moe_long_c8", C0, C1, concurrency=8, output_tokens=16, **MOE),
    versus("minimax_steady_low", C5, C1, concurrency=1, **MINIMAX),
    versus("dense_tp1_long", C0, C1, tp=1, **DENSE),
    versus("moe_burst16", C0, C1, concurrency=16, output_tokens=8, **MOE),
)
HOW = (
    "small-width models with real vocabularies on CPU, an emulated link, "
    f"{PAIRS} AB/BA pairs of fresh processes"
)

Measured = dict[str, Any]
FULL = "runs with --full"


def compared(
    name: str,
    comparisons: Sequence[Comparison],
    settings: Settings,
    claims: Callable[[Mapping[str, Mapping[str, Effect]]], Measured],
    run: Engine,
) -> Result:
    """A campaign of comparisons as a result: checks, raw rows, and claims on their effects."""
    rows = measure(comparisons, run, settings, name)
    found = {c.name: effects(rows, c.name, seed=settings.seed) for c in comparisons}
    return Result(
        name=name,
        how=HOW,
        checks=tuple(check for c in comparisons for check in agreement(rows, c.name)),
        tables=(traffic_table(rows),),
        records=tuple(stable_rows(rows)),
        volatile=Volatile(
            measured=claims(found),
            tables=(effect_table(found),),
            records=tuple(timed_rows(rows)),
            notes={"effects": found, "link": link_of(comparisons)},
        ),
        not_run=FULL,
    )


def link_of(comparisons: Sequence[Comparison]) -> str:
    """The link that was asked for, in words."""
    ask = comparisons[0].reference
    return f"emulated, {ask.rate_bit_s / 1e9:g} Gbit/s, {ask.rtt_s * 1e3:g} ms round trip"


def link_asked() -> Any:
    """The same link, as the carrier takes it."""
    from sembridge.live.link import LinkSpec

    ask = LOAD_SWEEP[0].reference
    return LinkSpec(rate_bit_s=ask.rate_bit_s, rtt_s=ask.rtt_s)


def traffic_table(rows: Sequence[Row]) -> Table:
    """What crossed in one run of each plan."""
    seen: dict[tuple[str, str], Row] = {}
    for row in rows:
        seen.setdefault((row.task.comparison, row.task.role), row)
    return Table(
        title="Counted by the carrier: frames and framed bytes of one run",
        columns=("comparison", "plan", "steps", "forward", "result"),
        rows=tuple(
            (
                comparison,
                role,
                row.run.steps,
                f"{row.run.forward.frames} / {row.run.forward.framed_bytes}",
                f"{row.run.result.frames} / {row.run.result.framed_bytes}",
            )
            for (comparison, role), row in seen.items()
        ),
    )


def less(estimate: Estimate) -> Estimate:
    """A change as a reduction."""
    low, high = estimate.ci95
    return Estimate(mean=-estimate.mean, ci95=(-high, -low))


TPOT = {
    "dense": "dense_tp4_long_output",
    "moe_long": "moe_tp2_256_tokens",
    "minimax_c1": "minimax_c1",
    "minimax_c8": "minimax_c8",
    "minimax_c16": "minimax_c16",
}
"""Comparisons by what the paper calls them where it gives times per output token."""


def figure3_claims(found: Mapping[str, Mapping[str, Effect]]) -> Measured:
    """Throughput gained, p95 times saved, and how many pairs favour projection."""
    saved = {name: less(of["latency_p95"].estimate) for name, of in found.items()}
    measured: Measured = {
        f"figure3.throughput_gain_percent.{name}": of["throughput"].estimate
        for name, of in found.items()
    }
    measured |= {
        f"figure3.p95_tpot_reduction_percent.{short}": less(found[name]["tpot_p95"].estimate)
        for short, name in TPOT.items()
        if name in found
    }
    sweep = [c.name for c in LOAD_SWEEP]
    measured |= {
        f"figure3.p95_total_latency_reduction_percent.{name}": saved[name] for name in sweep
    }
    if len(found) > len(sweep):
        measured["figure3.p95_total_latency_reduction_percent.least"] = min(
            saved.values(), key=lambda e: e.ci95[0]
        )
    measured["figure3.minimax_pairs_positive"] = sum(
        found[name]["throughput"].positive for name in sweep
    )
    measured["figure3.fresh_process_pairs"] = len(found[sweep[0]]["throughput"].effects)
    measured["figure3.pairs_per_order"] = PAIRS // 2
    return measured


def gains(prefix: str, *, bootstrap: bool = False) -> Callable[..., Measured]:
    """Claims on throughput alone, by the estimator that the paper uses for them."""

    def claims(found: Mapping[str, Mapping[str, Effect]]) -> Measured:
        return {
            f"{prefix}.{name}": (
                of["throughput"].bootstrapped if bootstrap else of["throughput"].estimate
            )
            for name, of in found.items()
        }

    return claims


class Campaign(Struct, frozen=True, kw_only=True):
    """A paired campaign: what always runs, what ``--full`` adds, and what is claimed of it."""

    title: str
    short: tuple[Comparison, ...]
    long: tuple[Comparison, ...]
    claims: Callable[[Mapping[str, Mapping[str, Effect]]], Measured]

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All of them."""
        return self.short + self.long


CAMPAIGNS: dict[str, Campaign] = {
    "figure3": Campaign(
        title="Projection placement in the common runtime (figure 3)",
        short=LOAD_SWEEP,
        long=PROJECTION,
        claims=figure3_claims,
    ),
    "forward": Campaign(
        title="Shard transfer against representative transfer (§6.2)",
        short=FORWARD[:1],
        long=FORWARD[1:],
        claims=gains("forward_rewrite.throughput_gain_percent"),
    ),
    "owner": Campaign(
        title="Owner's token against projected tokens (§6.2)",
        short=OWNER[:1],
        long=OWNER[1:],
        claims=gains("owner_token_gain_percent"),
    ),
    "replicas": Campaign(
        title="Mapped copies against representative broadcast (§6.5)",
        short=REPLICAS[:1],
        long=REPLICAS[1:],
        claims=gains("replica_campaign_gain_percent", bootstrap=True),
    ),
}
"""Paired campaigns; to add one, add an entry."""


def _register(name: str, campaign: Campaign) -> None:
    @experiment(name, campaign.title, quick=False)
    def run(settings: Settings) -> Result:  # pyright: ignore[reportUnusedFunction]
        found = engine()
        if found is None:
            return not_run(name, LIVE)
        chosen = campaign.comparisons if settings.full else campaign.short
        return compared(name, chosen, settings, campaign.claims, found)


for _name, _campaign in CAMPAIGNS.items():
    _register(_name, _campaign)


def not_run(name: str, why: str) -> Result:
    """A result that says so, and why."""
    return Result(name=name, how="not run", not_run=why)
