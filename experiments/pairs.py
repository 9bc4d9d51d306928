"""The performance protocol (§6.1): fresh processes, AB/BA pairs, probes and timers apart.

An engine is a function from an :class:`Ask` to what a :class:`Run` of it measured, in processes
that it starts and ends. What is asked, in which order, is fixed before anything is measured.
Performance comes from plain runs alone; whether both plans give the same tokens is probed, and
component timers are taken, in runs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from experiments.ledger import Check
from experiments.registry import Settings, Table
from experiments.statistics import Effect, Order, Pair, compare_pairs, schedule
from sembridge.campaign import run_campaign

Purpose = Literal["measure", "probe", "timers"]
Role = Literal["reference", "specialized"]


class Arm(Struct, frozen=True, kw_only=True):
    """Which plans a run gets: policies of the lowerer, and whether the runtime names an owner."""

    forward: str = "semantic"
    result: str = "semantic"
    owner: bool = False


R0 = Arm(result="reference")
"""Complete logits cross, projected at the consumers."""
P0 = Arm()
"""Tokens cross; one representative forward, as everywhere unless said otherwise."""
S1 = Arm(owner=True)
"""The owner's tokens cross once."""
L0, S0 = Arm(forward="reference"), P0
"""Forward slices and AllGather; one representative and a broadcast."""
C1, C0, C5 = Arm(forward="mapped-copies"), P0, S1
"""Mapped copies; representative; representative with the owner's return."""


class Ask(Struct, frozen=True, kw_only=True):
    """One run: a small-width model with the real vocabulary, its load, its plans, the link."""

    model: str
    tp: int
    arm: Arm
    concurrency: int = 1
    prompt_tokens: int = 8
    output_tokens: int = 16
    seed: int = 0
    purpose: Purpose = "measure"
    rate_bit_s: float = 1e9
    rtt_s: float = 0.34e-3


class Traffic(Struct, frozen=True, kw_only=True):
    """What crossed in one direction."""

    frames: int
    framed_bytes: int
    payload_bytes: int


class Run(Struct, frozen=True, kw_only=True):
    """What a run measured: traffic and tokens, times in seconds, timers where asked for."""

    tokens: tuple[tuple[int, ...], ...]
    """Output tokens of each request."""
    steps: int
    forward: Traffic
    result: Traffic
    seconds: float
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    latency_s: tuple[float, ...]
    timers_ms: Mapping[str, float] = {}


Engine = Callable[[Ask], Run]


class Comparison(Struct, frozen=True, kw_only=True):
    """A specialized arm against a reference arm under one workload."""

    name: str
    reference: Ask
    specialized: Ask


def versus(name: str, specialized: Arm, reference: Arm, **workload: Any) -> Comparison:
    """The same workload under two arms."""
    ask = Ask(arm=reference, **workload)
    return Comparison(name=name, reference=ask, specialized=replace(ask, arm=specialized))


class Task(Struct, frozen=True, kw_only=True):
    """One run of a campaign, and its place: pair, order, first or second; pair -1 is the probe."""

    comparison: str
    pair: int
    order: Order
    role: Role
    ask: Ask

    @property
    def key(self) -> str:
        """Names the task in a journal."""
        return f"{self.comparison} {self.pair} {self.order} {self.role}"


def tasks(comparison: Comparison, seed: int) -> list[Task]:
    """A probe of each arm that is to be measured, then the pairs in the order drawn for them."""
    asks: dict[Role, Ask] = {
        "reference": comparison.reference,
        "specialized": comparison.specialized,
    }
    found: list[Task] = []
    for role, ask in asks.items():
        if ask.purpose == "measure":
            probe = replace(ask, purpose="probe")
            found.append(
                Task(comparison=comparison.name, pair=-1, order="AB", role=role, ask=probe)
            )
    for pair, order in enumerate(schedule(seed)):
        roles = list(asks) if order == "AB" else list(asks)[::-1]
        found += [
            Task(comparison=comparison.name, pair=pair, order=order, role=role, ask=asks[role])
            for role in roles
        ]
    return found


class Row(Struct, frozen=True, kw_only=True):
    """A task and what its run measured: a raw row."""

    task: Task
    run: Run


def _row(task: Task, engine: Engine) -> Row:
    return Row(task=task, run=engine(task.ask))


def measure(
    comparisons: Sequence[Comparison], engine: Engine, settings: Settings, journal: str
) -> list[Row]:
    """Every task one after another: runs must not disturb one another."""
    tick = settings.progress
    return run_campaign(
        [task for comparison in comparisons for task in tasks(comparison, settings.seed)],
        partial(_row, engine=engine),
        key=lambda task: task.key,
        result=Row,
        engine="serial",
        journal=settings.journal(journal),
        progress=tick and (lambda done, of: tick(done, of, journal)),
    )


METRICS: dict[str, Callable[[Run], float]] = {
    "throughput": lambda run: sum(map(len, run.tokens)) / run.seconds,
    "ttft_p95": lambda run: _p95(run.ttft_s),
    "tpot_p95": lambda run: _p95(run.tpot_s),
    "latency_p95": lambda run: _p95(run.latency_s),
}
"""What is compared; of all but throughput less is better. Output tokens a second, and seconds."""


def _p95(times: Sequence[float]) -> float:
    from experiments.statistics import p95

    return p95(times)


def effects(rows: Sequence[Row], comparison: str, *, seed: int = 0) -> dict[str, Effect]:
    """Effects of a comparison by metric, from its plain runs alone."""
    plain = [
        row
        for row in rows
        if row.task.comparison == comparison and row.task.ask.purpose == "measure"
    ]
    by_pair: dict[int, dict[str, Row]] = {}
    for row in plain:
        by_pair.setdefault(row.task.pair, {})[row.task.role] = row
    return {
        metric: compare_pairs(
            [
                Pair(
                    order=both["reference"].task.order,
                    reference=of(both["reference"].run),
                    specialized=of(both["specialized"].run),
                )
                for _, both in sorted(by_pair.items())
            ],
            seed=seed,
        )
        for metric, of in METRICS.items()
    }


def agreement(rows: Sequence[Row], comparison: str) -> tuple[Check, ...]:
    """Whether the two plans of a comparison give the same tokens, and every run the same bytes."""
    own = [row for row in rows if row.task.comparison == comparison]
    probed = [row.run.tokens for row in own if row.task.ask.purpose == "probe"]
    requests = len(probed[0])
    traffic = {
        role: {(r.run.forward, r.run.result) for r in own if r.task.role == role}
        for role in ("reference", "specialized")
    }
    return (
        Check(
            name=f"{comparison}: requests that get the same tokens under both plans",
            where="§6.3",
            ours=sum(one == other for one, other in zip(*probed, strict=True)),
            expected=requests,
        ),
        Check(
            name=f"{comparison}: different traffic among the runs of one plan",
            where="§6.1",
            ours=sum(len(found) - 1 for found in traffic.values()),
            expected=0,
        ),
    )


def stable_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of every run what does not vary: its place, its plans, its traffic."""
    return [
        {
            **_place(row.task),
            "steps": row.run.steps,
            **_traffic("forward", row.run.forward),
            **_traffic("result", row.run.result),
        }
        for row in rows
    ]


def timed_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of every run its times."""
    return [
        {
            **_place(row.task),
            "output_tokens": sum(map(len, row.run.tokens)),
            "seconds": row.run.seconds,
            **{name: of(row.run) for name, of in METRICS.items()},
            **row.run.timers_ms,
        }
        for row in rows
    ]


def _place(task: Task) -> dict[str, Any]:
    ask, arm = task.ask, task.ask.arm
    return {
        "comparison": task.comparison,
        "pair": task.pair,
        "order": task.order,
        "role": task.role,
        "purpose": ask.purpose,
        "model": ask.model,
        "tp": ask.tp,
        "concurrency": ask.concurrency,
        "forward_policy": arm.forward,
        "result_policy": arm.result,
        "owner": arm.owner,
    }


def _traffic(name: str, traffic: Traffic) -> dict[str, int]:
    return {
        f"{name}_frames": traffic.frames,
        f"{name}_framed_bytes": traffic.framed_bytes,
        f"{name}_payload_bytes": traffic.payload_bytes,
    }


def effect_table(found: Mapping[str, Mapping[str, Effect]]) -> Table:
    """Every pair effect and both intervals, as the paper's supplement is said to."""
    return Table(
        title="Effects of pairs, %: specialized over reference",
        columns=("comparison", "metric", "pairs", "mean", "paired t", "bootstrap", "AB", "BA"),
        rows=tuple(
            (
                name,
                metric,
                ", ".join(f"{d:.2f}" for d in e.effects),
                f"{e.mean:.2f}",
                "[{:.2f}, {:.2f}]".format(*e.paired_t),
                "[{:.2f}, {:.2f}]".format(*e.bootstrap),
                f"{e.mean_by_order['AB']:.2f}",
                f"{e.mean_by_order['BA']:.2f}",
            )
            for name, metrics in found.items()
            for metric, e in metrics.items()
        ),
        note="95% intervals over six pairs of fresh processes. On CPU and an emulated link: the "
        "sign of an effect is comparable with the paper's, its size is not.",
    )
