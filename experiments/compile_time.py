"""Compile time (§6.2): facts to contract to checked plan, for the contract of each model edge."""

from __future__ import annotations

import gc
from time import perf_counter_ns
from typing import Any

from experiments.real_edges import headline_edges
from experiments.registry import Result, Settings, Table, Volatile, experiment
from sembridge.lowering import compile_edge
from sembridge.models import NamedEdge

ROUNDS, CALLS = 5, 400
"""Rounds of single calls; of the rounds' quantiles the least disturbed, the smallest, counts."""


def quantiles(edge: NamedEdge, rounds: int = ROUNDS, calls: int = CALLS) -> tuple[float, float]:
    """p50 and p95 of single calls of ``compile_edge`` in milliseconds, collector off."""
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        times: list[float] = []
        gc.collect()
        gc.disable()
        try:
            for _ in range(calls):
                start = perf_counter_ns()
                compile_edge(edge.edge, edge.graph, edge.runtime)
                times.append((perf_counter_ns() - start) / 1e6)
        finally:
            gc.enable()
        times.sort()
        found.append((times[calls // 2], times[calls * 95 // 100]))
    p50s, p95s = zip(*found, strict=True)
    return min(p50s), min(p95s)


@experiment("compile", "Compile time of the model contracts, p50 and p95 (§6.2)")
def compile_time(settings: Settings) -> Result:
    """Compile every headline edge again and again, off the token path as in the paper."""
    records: list[dict[str, Any]] = []
    for name, edge in headline_edges().items():
        p50, p95 = quantiles(edge)
        records.append({"edge": name, "p50_ms": round(p50, 4), "p95_ms": round(p95, 4)})
    slowest = max(r["p95_ms"] for r in records)
    return Result(
        name="compile",
        how=f"single calls of compile_edge, nothing cached; {ROUNDS} rounds of {CALLS} calls, the "
        "smallest quantile of the rounds",
        volatile=Volatile(
            measured={
                "compile_p95_ms.a100_host": slowest,
                "compile_p95_ms.ascend_host": slowest,
            },
            tables=(
                Table(
                    title="Compile time on this machine, ms",
                    columns=("edge", "p50", "p95"),
                    rows=tuple((r["edge"], r["p50_ms"], r["p95_ms"]) for r in records),
                ),
            ),
            records=tuple(records),
        ),
    )
