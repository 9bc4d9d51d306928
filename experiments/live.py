"""The live experiments: plans between two running domains, by the protocol of :mod:`pairs`.

On CPU and an emulated link the direction of an effect and the byte counts are claims; the
percentages are not. Without an engine every one of them shows as not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from experiments import exchange
from experiments.engine import LIVE, NO_ENGINE, engine, live_installed
from experiments.exchange import HEAD, Orders, launch_orders, step_edges
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
    Ask,
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
from experiments.statistics import PAIRS, Effect, p95

DENSE: dict[str, Any] = {"model": "qwen3", "output_tokens": 32}
MOE: dict[str, Any] = {"model": "qwen3-moe", "tp": 2}
MINIMAX: dict[str, Any] = {"model": "minimax-m2", "tp": 2, "output_tokens": 8}

PROJECTION: tuple[Comparison, ...] = (
    versus("dense_tp4_long_output", P0, R0, tp=4, **DENSE),
    versus("moe_tp2_64_tokens", P0, R0, output_tokens=16, **MOE),
    versus("moe_tp2_256_tokens", P0, R0, output_tokens=32, **MOE),
    versus("minimax_c1", P0, R0, concurrency=1, **MINIMAX),
    versus("minimax_c8", P0, R0, concurrency=8, **MINIMAX),
    versus("minimax_c16", P0, R0, concurrency=16, **MINIMAX),
)
"""Figure 3: the paper's workloads with shorter outputs, MiniMax on two lanes of a side."""

FORWARD: tuple[Comparison, ...] = (
    versus("dense_tp4", S0, L0, tp=4, **DENSE),
    versus("moe_256", S0, L0, output_tokens=32, **MOE),
)
OWNER: tuple[Comparison, ...] = (
    versus("moe_64", S1, P0, output_tokens=16, **MOE),
    versus("moe_256", S1, P0, output_tokens=32, **MOE),
)
REPLICAS: tuple[Comparison, ...] = (
    versus("dense_tp4_long", C0, C1, tp=4, **DENSE),
    versus("minimax_burst16", C5, C1, concurrency=16, **MINIMAX),
    versus("moe_long_c8", C0, C1, concurrency=8, output_tokens=16, **MOE),
    versus("minimax_steady_low", C5, C1, concurrency=1, **MINIMAX),
    versus("dense_tp1_long", C0, C1, tp=1, **DENSE),
    versus("moe_burst16", C0, C1, concurrency=16, output_tokens=8, **MOE),
)
HOW = f"small-width models with real vocabularies on CPU, an emulated link, {PAIRS} AB/BA pairs of "
HOW += "fresh processes"

Measured = dict[str, Any]


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
    )


def link_of(comparisons: Sequence[Comparison]) -> str:
    """The link that was asked for, in words."""
    ask = comparisons[0].reference
    return f"emulated, {ask.rate_bit_s / 1e9:g} Gbit/s, {ask.rtt_s * 1e3:g} ms round trip"


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


def figure3_claims(found: Mapping[str, Mapping[str, Effect]]) -> Measured:
    """Throughput gained, p95 times saved, and how many pairs favour projection."""
    measured: Measured = {
        f"figure3.throughput_gain_percent.{name}": of["throughput"].estimate
        for name, of in found.items()
    }
    tpot = {
        "dense": "dense_tp4_long_output",
        "moe_long": "moe_tp2_256_tokens",
        "minimax_c1": "minimax_c1",
        "minimax_c8": "minimax_c8",
        "minimax_c16": "minimax_c16",
    }
    saved = {name: less(of["latency_p95"].estimate) for name, of in found.items()}
    measured |= {
        f"figure3.p95_tpot_reduction_percent.{short}": less(found[name]["tpot_p95"].estimate)
        for short, name in tpot.items()
    }
    measured |= {
        f"figure3.p95_total_latency_reduction_percent.{name}": saved[name]
        for name in ("minimax_c1", "minimax_c8", "minimax_c16")
    }
    measured["figure3.p95_total_latency_reduction_percent.least"] = min(
        saved.values(), key=lambda e: e.ci95[0]
    )
    measured["figure3.minimax_pairs_positive"] = sum(
        of["throughput"].positive for name, of in found.items() if name.startswith("minimax")
    )
    measured["figure3.fresh_process_pairs"] = len(found["minimax_c1"]["throughput"].effects)
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


CAMPAIGNS: dict[str, tuple[str, tuple[Comparison, ...], Callable[..., Measured]]] = {
    "figure3": (
        "Projection placement in the common runtime (figure 3)",
        PROJECTION,
        figure3_claims,
    ),
    "forward": (
        "Shard transfer against representative transfer (§6.2)",
        FORWARD,
        gains("forward_rewrite.throughput_gain_percent"),
    ),
    "owner": (
        "Owner's token against projected tokens (§6.2)",
        OWNER,
        gains("owner_token_gain_percent"),
    ),
    "replicas": (
        "Mapped copies against representative broadcast (§6.5)",
        REPLICAS,
        gains("replica_campaign_gain_percent", bootstrap=True),
    ),
}
"""Paired campaigns: title, comparisons, and what is claimed of their effects."""


def _register(name: str) -> None:
    title, comparisons, claims = CAMPAIGNS[name]

    @experiment(name, title, quick=False)
    def run(settings: Settings) -> Result:  # pyright: ignore[reportUnusedFunction]
        found = engine()
        if found is None:
            return not_run(name, NO_ENGINE)
        return compared(name, comparisons, settings, claims, found)


for _name in CAMPAIGNS:
    _register(_name)


def not_run(name: str, why: str) -> Result:
    """A result that says so, and why."""
    return Result(name=name, how="not run", not_run=why)


# Without the model -------------------------------------------------------------------------------

ROUND_TRIPS = ((4, 1), (1_048_576, 16))
"""A small frame and its answer; sixteen mebibytes."""


@experiment(
    "link", "The link that the live experiments use: rate and round trip (§6.1)", quick=False
)
def link(settings: Settings) -> Result:
    """Time a small frame's echo and a large transfer, over the link and the carrier."""
    if not live_installed():
        return not_run("link", LIVE)
    from sembridge.live.carrier import QUEUE_DEPTH
    from sembridge.live.staging import CACHE_BYTES

    ask = Ask(model="qwen3", tp=1, arm=P0)
    ranks = launch_orders(Orders(arms=(tuple(step_edges(ask)),), steps=1, bursts=ROUND_TRIPS), ask)
    small, large = ranks[f"{HEAD}/0"]["bursts"]
    bits = 8 * ROUND_TRIPS[1][0] * ROUND_TRIPS[1][1]
    rate, rtt = bits / median(large), 1e3 * p95(small)
    return Result(
        name="link",
        how="messages between two ranks over the carrier and the emulated link",
        measured={
            "pinned_cache_mib": CACHE_BYTES // 2**20,
            "sender_queue_depth": QUEUE_DEPTH,
        },
        volatile=Volatile(
            measured={"link.rate_bit_s": rate, "link.p95_tcp_echo_rtt_ms": rtt},
            records=tuple({"what": "echo", "seconds": s} for s in small),
            notes={"link": link_of([PROJECTION[0]]), "median_rtt_ms": 1e3 * median(small)},
        ),
    )


@experiment("figure4", "Host traffic against replica multiplicity (figure 4)", quick=False)
def figure4(settings: Settings) -> Result:
    """Count what the carrier sends under mapped copies and under a representative, TP1, 2, 4."""
    if not live_installed():
        return not_run("figure4", LIVE)
    records: list[dict[str, Any]] = []
    measured: Measured = {}
    for n, tp in enumerate((1, 2, 4)):
        if settings.progress:
            settings.progress(n, 3, "figure4")
        total: dict[str, float] = {}
        for plan, arm in (("mapped copies", C1), ("representative", C0)):
            ran = exchange.run(Ask(model="qwen3", tp=tp, arm=arm, output_tokens=TOKENS))
            total[plan] = ran.forward.framed_bytes + ran.result.framed_bytes
            records.append(
                {
                    "tp": tp,
                    "plan": plan,
                    "output_tokens": TOKENS,
                    "frames": ran.forward.frames + ran.result.frames,
                    "framed_bytes": total[plan],
                    "bytes_per_token": total[plan] / TOKENS,
                }
            )
        saved = 100 * (1 - total["representative"] / total["mapped copies"])
        measured[f"figure4.tp{tp}"] = round(saved, 2)
    return Result(
        name="figure4",
        how="decode steps of Qwen3-14B's widths exchanged between two gloo domains, forward and "
        "back, without the model's computation; framed bytes as the carrier counts them",
        measured=measured,
        tables=(
            Table(
                title="Counted by the carrier, for an output token",
                columns=("lanes", "plan", "frames", "framed bytes"),
                rows=tuple(
                    (
                        r["tp"],
                        r["plan"],
                        r["frames"] // TOKENS,
                        r["framed_bytes"] // TOKENS,
                    )
                    for r in records
                ),
            ),
        ),
        records=tuple(records),
    )


TOKENS = 8

for _name, _title in {
    "table3": "The MLP slice across two domains against float32 (Table 3)",
    "switching": "Three kinds of request through one pair of engines (§6.3)",
    "figure2": "Component timers of full logits and projection, instrumented (figure 2)",
}.items():
    experiment(_name, _title, quick=False)(lambda settings, name=_name: not_run(name, NO_ENGINE))
