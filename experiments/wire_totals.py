"""The byte and frame totals that the paper prints, from plans alone (figures 2 and 3, §5.3, §6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.ledger import Check
from experiments.real_edges import load_model
from experiments.registry import Result, Settings, Table, experiment
from sembridge.coalesce import graph_cost
from sembridge.contract import Contract
from sembridge.lowering import LADDER, REFERENCE, SEMANTIC, Policy, lower, lower_valid
from sembridge.models import Deployment, model_edges, result_edge
from sembridge.obligations import Obligations, resolve_valid
from sembridge.reference import Outcome, execute_valid
from sembridge.surfaces import Logprobs, Surface, Tokens
from sembridge.wire import Framed, framed

COPIES = LADDER[0]
MINIMAX, DENSE, MOE = "minimax-m2.7", "qwen3-14b", "qwen3.5-35b-a3b"
RESULT_TENSORS = 2
"""Result frames of a lane and step in the replica campaigns: what the counts of §5.3 imply."""

CELLS: dict[str, tuple[str, int, str, int, int]] = {
    "dense_tp4": (DENSE, 4, "bfloat16", 514, 130),
    "moe_tp2": (MOE, 2, "bfloat16", 2571, 332),
    "minimax": (MINIMAX, 4, "float32", 2049, 257),
}
"""Model, lanes, logits' dtype, result rows and steps of figure 3's restart cells. Steps are the
AllGathers that the paper counts (MiniMax's are not given: 8 × 32 + 1 fit); rows and dtype are those
that give the full-logit total as printed. The projected totals then follow."""

FORWARD_POSITIONS, FORWARD_STEPS = 693, 117
"""Dense forward comparison: positions that give the payload, steps that give the frames (§6.2)."""


def steps(rows: int, count: int) -> list[int]:
    """``rows`` result rows over ``count`` decode steps, as even as they go.

    How the paper batched them is not printed, and the totals do not depend on it.
    """
    least, more = divmod(rows, count)
    return [least + (i < more) for i in range(count)]


def result(
    rows: int,
    surface: Surface,
    *,
    model: str = MINIMAX,
    tp: int = 4,
    dtype: str = "float32",
    owner: int | None = None,
) -> Obligations:
    """What the result edge of one decode step obliges to."""
    deployment = Deployment(tp=tp, rows=rows, owner=owner, logits_dtype=dtype)
    return resolve_valid(result_edge(load_model(model), deployment, surface).contract())


def total(
    rows_per_step: Sequence[int], surface: Surface, *, policy: Policy = SEMANTIC, **edge: Any
) -> Framed:
    """Framed traffic of a result edge over several decode steps."""
    traffic = Framed(frames=0, payload=0, framed=0)
    for rows in rows_per_step:
        ob = result(rows, surface, **edge)
        traffic += framed(ob, lower_valid(ob, policy)[0].ops)
    return traffic


def forward(
    rows_per_step: Sequence[int], policy: Policy, *, model: str = DENSE, tp: int = 4
) -> tuple[int, int]:
    """Payload bytes and frames of hidden and residual, packed, over several steps."""
    payload = frames = 0
    for rows in rows_per_step:
        edges = model_edges(load_model(model), Deployment(tp=tp, rows=rows))
        contracts: list[Contract] = [edges[kind].contract() for kind in ("hidden", "residual")]
        cost = graph_cost([(contract, lower(contract, policy)) for contract in contracts])
        payload += sum(f.cross_bytes for f in cost.footprints.values())
        frames += cost.cross_startups
    return payload, frames


def matched() -> tuple[int, int]:
    """Consumers that execution matches with the reference under both token plans, and all."""
    equal = lanes = 0
    for owner in (None, 3):
        for rows in steps(17, 5):
            ob = result(rows, Tokens(), owner=owner)
            outcome = execute_valid(ob, lower_valid(ob)[0], variants=1).outcome
            lanes += len(ob.demanded)
            equal += len(ob.demanded) if outcome is Outcome.EQUAL else 0
    return equal, lanes


def digits(value: float, count: int) -> float:
    """A number to ``count`` significant digits, as it is printed."""
    return float(f"{value:.{count - 1}e}")


def saved(less: float, more: float) -> float:
    """Percent saved, to the four digits that the paper prints."""
    return round(100 * (1 - less / more), 4)


def _replicas() -> Iterator[tuple[str, list[int]]]:
    """Forward and result frames of one step on MiniMax's two-lane graph (§5.3)."""
    for name, policy, owner in (("C1", COPIES, None), ("C0", SEMANTIC, None), ("C5", SEMANTIC, 1)):
        _, sent = forward([1], policy, model=MINIMAX, tp=2)
        back = total([1], Tokens(), policy=policy, tp=2, owner=owner).frames
        yield f"forward_result_frames_per_step_tp2.{name}", [sent, RESULT_TENSORS * back]


@experiment("wire", "Framed bytes and frames of plans against the totals that the paper prints")
def wire(settings: Settings) -> Result:
    """Figure 2, the live run, figure 3's cells, the forward rewrite, §5.3 and equation 6."""
    runs = {
        "figure2.R0": total([4], Tokens(), policy=REFERENCE),
        "figure2.P0": total([4], Tokens()),
        "live_surface_switching.logprobs": total(steps(17, 9), Logprobs()),
        "live_surface_switching.token_only": total(steps(17, 5), Tokens()),
        "live_surface_switching.owner_scoped": total(steps(17, 5), Tokens(), owner=3),
    }
    measured: dict[str, Any] = {}
    for name, found in runs.items():
        measured |= {f"{name}.frames": found.frames, f"{name}.bytes": found.framed}
    factor = runs["figure2.R0"].framed / runs["figure2.P0"].framed
    measured["figure2.reduction_factor"] = round(factor)
    measured["live_surface_switching.consumers_matched"] = list(matched())
    for name, (model, tp, dtype, rows, count) in CELLS.items():
        of = {"model": model, "tp": tp, "dtype": dtype}
        full = total(steps(rows, count), Tokens(), policy=REFERENCE, **of)
        projected = total(steps(rows, count), Tokens(), **of)
        runs[f"figure3.{name}.R0"], runs[f"figure3.{name}.P0"] = full, projected
        at = f"figure3.result_traffic_bytes.{name}"
        measured |= {
            f"{at}.R0": digits(full.framed, 4),
            f"{at}.P0": digits(projected.framed, 3),
            f"{at}.reduction_percent": saved(projected.framed, full.framed),
        }
    measured["result_traffic_saved_percent"] = min(
        n for name, n in measured.items() if name.endswith("reduction_percent")
    )
    positions = steps(FORWARD_POSITIONS, FORWARD_STEPS)
    sharded, single = forward(positions, REFERENCE), forward(positions, SEMANTIC)
    measured |= {
        "forward_rewrite.dense_tp4_payload_bytes": sharded[0],
        "forward_rewrite.frames.shard": sharded[1],
        "forward_rewrite.frames.representative": single[1],
        **dict(_replicas()),
    }
    for k in (1, 2, 4):
        copies, one = forward([1], COPIES, tp=k)[0], forward([1], SEMANTIC, tp=k)[0]
        measured[f"figure4.predicted.tp{k}"] = round(100 * (1 - one / copies))
    table = Table(
        title="Framed bytes of result edges, from our plans",
        columns=("run", "frames", "framed bytes", "payload bytes"),
        rows=tuple((name, f.frames, f.framed, f.payload) for name, f in runs.items()),
        note="48 header bytes a frame and 82 bytes of metadata on a frame that carries a slice: "
        "derived from the paper's totals, which it does not explain. Nothing here was sent.",
    )
    return Result(
        name="wire",
        how="wire accounting of lowered plans; no bytes were sent",
        measured=measured,
        checks=(
            Check(
                name="payload of representative transfer, the same as of shard transfer",
                where="§6.2",
                ours=single[0],
                expected=sharded[0],
            ),
        ),
        tables=(table,),
    )
