"""What crosses live, in single runs: the link, figure 4's bytes, Table 3, switching, figure 2."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from experiments import exchange
from experiments.engine import LIVE, engine, live_installed, saved
from experiments.exchange import HEAD, Orders, launch_orders, step_edges
from experiments.ledger import REPORTED, Check, ledger, paper
from experiments.live import (
    LOAD_SWEEP,
    MINIMAX,
    Measured,
    link_asked,
    link_of,
    not_run,
    traffic_table,
)
from experiments.pairs import C0, C1, P0, R0, Ask, Row, measure, stable_rows, timed_rows, versus
from experiments.registry import Result, Settings, Table, Volatile, experiment
from experiments.statistics import Effect, Pair, compare_pairs, p95

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
            notes={"link": link_of(LOAD_SWEEP), "median_rtt_ms": 1e3 * median(small)},
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


# The MLP slice, and switching surfaces ----------------------------------------------------------


@experiment("table3", "The MLP slice across two domains against float32 (Table 3)", quick=False)
def table3(settings: Settings) -> Result:
    """Deliver activation shards, complete partials, and compare with float32."""
    if not live_installed():
        return not_run("table3", LIVE)
    from sembridge.live import mlp

    weights = mlp.random_weights()
    found = mlp.table3(weights)
    rows = [row for row, _, _ in found]
    measured: Measured = {
        "table3.token_counts": [row.tokens for row in rows],
        "table3.shard_delivery_bitwise": sum(row.bitwise for row in rows),
        "table3.partials_distinct_then_equal": sum(row.distinct and row.equal for row in rows),
    }
    errors: Measured = {}
    for row in rows:
        at = f"table3.tokens{row.tokens}"
        errors[f"{at}.relative_l2_percent"] = round(row.relative_l2_percent, 3)
        errors[f"{at}.max_error_over_peak_percent"] = round(row.max_error_over_peak_percent, 3)
    table = Table(
        title="Table 3: errors against the float32 down projection, %",
        columns=("tokens", "shards", "completion", *_twice("relative L2"), *_twice("max / peak")),
        rows=tuple(
            (
                row.tokens,
                "bitwise" if row.bitwise else "not bitwise",
                "distinct → equal" if row.distinct and row.equal else "not so",
                paper(f"table3.tokens{row.tokens}.relative_l2_percent"),
                errors[f"table3.tokens{row.tokens}.relative_l2_percent"],
                paper(f"table3.tokens{row.tokens}.max_error_over_peak_percent"),
                errors[f"table3.tokens{row.tokens}.max_error_over_peak_percent"],
            )
            for row in rows
        ),
        note=f"Ours: {weights.origin}; the paper's are Qwen3-14B's of layer 0. Rounding of sums "
        "depends on the machine's kernels.",
    )
    return Result(
        name="table3",
        how="activation shards cross between two gloo domains, bfloat16 partials are completed "
        f"natively; {weights.origin}",
        measured=measured,
        checks=tuple(
            Check(
                name=f"{row.tokens} tokens: framed bytes sent on {edge}, the plan's",
                where="§6.4",
                ours=sent[edge].framed,
                expected=wire[edge].framed,
            )
            for row, wire, sent in found
            for edge in wire
        ),
        volatile=Volatile(measured=errors, tables=(table,)),
    )


def _twice(what: str) -> tuple[str, str]:
    return f"{what}, {REPORTED}", f"{what}, ours"


@experiment("switching", "Three kinds of request through one pair of engines (§6.3)", quick=False)
def switching(settings: Settings) -> Result:
    """Serve log-probability, token-only and owner-scoped requests by one pair of engines."""
    if engine() is None:
        return not_run("switching", LIVE)
    from sembridge.live import parts, session

    folder, site = saved("minimax-m2"), session.Site(tp=4, link=link_asked())
    facts = session.facts_of(folder)
    planned = [session.plan(facts, site, ask) for ask in session.switching(site.tp, facts.vocab)]
    outcome = session.run(folder, site, planned)
    model = parts.load("minimax-m2")
    references = {p.ask.id: parts.greedy(model, p.ask.prompts, p.ask.steps) for p in planned}
    served = session.judge(planned, outcome, references)
    checks: list[Check] = []
    for kind, total in session.totals(served).items():
        told = [one.wire["result"] for one in served if one.id.startswith(f"{kind}/")]
        for what, ours, expected in (
            ("frames", total.result.frames, sum(wire.frames for wire in told)),
            ("framed bytes", total.result.framed, sum(wire.framed for wire in told)),
        ):
            name = f"{kind}: result {what} sent, the plans'"
            checks.append(Check(name=name, where="§6.3", ours=ours, expected=expected))
        checks.append(
            Check(
                name=f"{kind}: consumers that match the unsplit model",
                where="§6.3",
                ours=total.matched,
                expected=total.consumers,
            )
        )
        if kind == "owner_scoped":
            name, owner = f"{kind}: tail lanes that send a result", [site.tp - 1]
            checks.append(Check(name=name, where="§6.3", ours=list(total.senders), expected=owner))
    batch = next(one for one in served if one.id == "logprobs/batch")
    return Result(
        name="switching",
        how="small-width MiniMax-M2 with the real vocabulary, four lanes a side on CPU; plans "
        "derived from the requests, one pair of engines",
        measured={
            "live_surface_switching.logprobs.positions": sum(len(row) for row in batch.logprobs)
        },
        checks=tuple(checks),
        records=tuple(
            {
                "request": one.id,
                "surface": one.surface,
                "steps": one.steps,
                "rows": len(one.tokens),
                "result_frames": one.sent["result"].frames,
                "result_framed_bytes": one.sent["result"].framed,
                "matched": one.matched,
                "consumers": one.consumers,
            }
            for one in served
        ),
        volatile=Volatile(notes={"link": link_of(LOAD_SWEEP), "seconds": outcome.seconds}),
    )


@experiment("figure2", "Component timers of full logits and projection (figure 2)", quick=False)
def figure2(settings: Settings) -> Result:
    """Take component timers in instrumented runs of their own, six pairs of fresh processes."""
    run = engine()
    if run is None:
        return not_run("figure2", LIVE)
    comparison = versus("timers", P0, R0, concurrency=16, purpose="timers", **MINIMAX)
    rows = measure([comparison], run, settings, "figure2")
    found = timer_effect(rows, "next_stage_ms", seed=settings.seed)
    plans = {"R0": "reference", "P0": "specialized"}
    means = {
        f"figure2.{plan}.{timer}": fmean(times)
        for plan, role in plans.items()
        for timer, times in timers(rows, role).items()
    }
    claimed = {c.name for c in ledger().values() if c.experiment == "figure2"}
    reference, specialized = (means[f"figure2.{plan}.next_stage_ms"] for plan in plans)
    return Result(
        name="figure2",
        how="local timers of instrumented live runs, small-width MiniMax-M2 with the real "
        "vocabulary on CPU, two lanes a side, 16 rows; nothing is copied between devices there",
        tables=(traffic_table(rows),),
        records=tuple(stable_rows(rows)),
        volatile=Volatile(
            measured={name: ms for name, ms in means.items() if name in claimed}
            | {
                "figure2.next_stage_change_ms": specialized - reference,
                "figure2.next_stage_change_percent": found.estimate,
            },
            records=tuple(timed_rows(rows)),
            notes={"link": link_of(LOAD_SWEEP), "effects": found},
        ),
    )


def timers(rows: Sequence[Row], role: str) -> dict[str, list[float]]:
    """Every timer of an arm's runs, ms per decode step."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.task.role == role:
            for timer, ms in row.run.timers_ms.items():
                found.setdefault(timer, []).append(ms)
    return found


def timer_effect(rows: Sequence[Row], timer: str, *, seed: int = 0) -> Effect:
    """The effect of pairs on one timer."""
    both: dict[int, dict[str, Row]] = {}
    for row in rows:
        both.setdefault(row.task.pair, {})[row.task.role] = row
    pairs = [
        Pair(
            order=found["reference"].task.order,
            reference=found["reference"].run.timers_ms[timer],
            specialized=found["specialized"].run.timers_ms[timer],
        )
        for _, found in sorted(both.items())
    ]
    return compare_pairs(pairs, seed=seed)
