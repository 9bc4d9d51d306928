"""The 13 real edges (§6.2, §6.4): built from published configs, never typed in."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from experiments.ledger import Check
from experiments.matrix import PLANNERS
from experiments.registry import Result, Settings, Table, experiment
from sembridge.check import check
from sembridge.contract import Contract
from sembridge.models import (
    Deployment,
    ModelFacts,
    NamedEdge,
    mlp_edges,
    model_edges,
    read_model,
    result_edge,
)
from sembridge.reference import Outcome, execute
from sembridge.surfaces import Logprobs, Tokens
from sembridge.verdict import Verdict

MODELS: dict[str, tuple[str, int]] = {
    "qwen3-14b": ("qwen3-14b.json", 4),
    "qwen3.5-35b-a3b": ("qwen3.5-35b-a3b.json", 2),
    "minimax-m2.7": ("minimax-m2.7.json", 4),
}
"""The paper's three models: config file and TP degree (dense TP4, MoE TP2, MiniMax 4 lanes)."""

ROWS = 4
"""Rows of one decode step: the batch that the paper's figure 2 accounts for."""


def load_model(name: str) -> ModelFacts:
    """A model of ``MODELS`` from the config that ships with the experiments."""
    config = files("experiments").joinpath("configs", MODELS[name][0]).read_text("utf-8")
    return read_model(json.loads(config), name=name)


def headline_edges() -> dict[str, NamedEdge]:
    """Three models × hidden, residual and owner-issued result."""
    edges: dict[str, NamedEdge] = {}
    for name, (_, tp) in MODELS.items():
        deployment = Deployment(tp=tp, rows=ROWS, owner=tp - 1)
        for edge in model_edges(load_model(name), deployment).values():
            edges[edge.edge.name] = edge
    return edges


def real_edges() -> dict[str, NamedEdge]:
    """The nine headline edges, two of the Qwen3-14B MLP, and two results without an owner."""
    edges = headline_edges()
    mlp = mlp_edges(load_model("qwen3-14b"), Deployment(tp=2, rows=8))
    minimax, four = load_model("minimax-m2.7"), Deployment(tp=4, rows=ROWS)
    others = [
        *mlp.values(),
        result_edge(minimax, four, Logprobs(), name="result.logprobs"),
        result_edge(minimax, four, Tokens(), name="result.tokens"),
    ]
    return edges | {e.edge.name: e for e in others}


def contracts() -> dict[str, Contract]:
    """The contracts of the 13 real edges, by edge name."""
    return {name: edge.contract() for name, edge in real_edges().items()}


def _judge(contract: Contract) -> dict[str, Any]:
    record: dict[str, Any] = {"edge": contract.name}
    for planner, plan_for in PLANNERS.items():
        plan = plan_for(contract)
        report = check(contract, plan)
        record[planner] = {
            "verdict": str(report.verdict),
            "rules": sorted({v.rule for v in report.violations}),
            "execution": str(execute(contract, plan, variants=1).outcome),
            "footprint": list(report.footprint),
            "ops": [type(op).__name__ for op in plan.ops],
        }
    return record


@experiment("edges", "The 13 real edges, and the nine headline ones against Layout-Only (§6.2)")
def edges(settings: Settings) -> Result:
    """Lower, check and execute every planner's plan on the real edges."""
    found: list[dict[str, Any]] = []
    all_edges = contracts()
    for i, (name, contract) in enumerate(all_edges.items()):
        if settings.progress:
            settings.progress(i, len(all_edges), name)
        found.append(_judge(contract))
    headline = set(headline_edges())
    nine = [r for r in found if r["edge"] in headline]

    def lower_on(component: int) -> int:
        return sum(
            r["semantic"]["footprint"][component] < r["layout-only"]["footprint"][component]
            for r in nine
        )

    activation = all_edges["qwen3-14b.mlp.activation"]
    measured = {
        "real_edges.all": len(found),
        "real_edges.headline": len(nine),
        "real_edges.headline_shapes_differ": sum(
            r["semantic"]["ops"] != r["layout-only"]["ops"] for r in nine
        ),
        "real_edges.headline_startups_lower": lower_on(1),
        "real_edges.headline_bytes_lower": lower_on(0),
        "table3.lanes": len(activation.producers),
        "table3.columns_per_lane": activation.value.shape[-1],
    }
    checks = (
        Check(
            name="edges whose lowered plan is accepted and executes as equal",
            where="§6.2",
            ours=sum(
                r["semantic"]["verdict"] == Verdict.LEGAL
                and r["semantic"]["execution"] == Outcome.EQUAL
                for r in found
            ),
            expected=len(found),
        ),
        Check(
            name="edges on which both judges agree, all four planners",
            where="§6.2",
            ours=sum(
                all(
                    (r[p]["verdict"] == Verdict.LEGAL) == (r[p]["execution"] == Outcome.EQUAL)
                    for p in PLANNERS
                )
                for r in found
            ),
            expected=len(found),
        ),
    )
    table = Table(
        title="Real edges: cross-domain bytes and startups per step",
        columns=("edge", "headline", "SemBridge", "layout-only", "layout-only is", "byte-only is"),
        rows=tuple(
            (
                r["edge"],
                "yes" if r["edge"] in headline else "",
                "{} B / {}".format(*r["semantic"]["footprint"][:2]),
                "{} B / {}".format(*r["layout-only"]["footprint"][:2]),
                r["layout-only"]["verdict"],
                r["byte-only"]["verdict"],
            )
            for r in found
        ),
        note=f"{ROWS} rows a step (8 on the MLP edges); float32 logits.",
    )
    return Result(
        name="edges",
        how="contracts built from published model configs; plans by four planners; verdicts by "
        "the checker and by execution on value-revealing arrays",
        measured=measured,
        checks=checks,
        tables=(table,),
        records=tuple(found),
    )
