"""Contracts from real models and from graphs: the edges command."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sembridge import io
from sembridge.cli.console import Json, Quiet, emit, err, out, table
from sembridge.cli.graphs import Domains, Graphs, graph_edge
from sembridge.coalesce import graph_cost
from sembridge.draw import size_of
from sembridge.errors import BadInput
from sembridge.lowering import lower_valid
from sembridge.models import (
    SURFACES,
    Deployment,
    NamedEdge,
    mlp_edges,
    model_edges,
    read_model,
    result_edge,
)
from sembridge.obligations import resolve_valid
from sembridge.wire import framed


def edges(
    model_config: Annotated[
        Path | None, typer.Option(help="A model's published config.json.")
    ] = None,
    graph: Graphs = None,
    domains: Domains = None,
    tp: Annotated[
        int | None, typer.Option(help="Tensor-parallel lanes on each side (model config).")
    ] = None,
    owner: Annotated[
        int | None, typer.Option(help="Producer rank that owns the decision, where one does.")
    ] = None,
    surface: Annotated[
        str | None,
        typer.Option(
            help=f"Result surface: {', '.join(SURFACES)}. By default tokens of a model config, "
            "complete of a graph."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows (tokens) of one step.")] = 1,
    cut: Annotated[
        str | None,
        typer.Option(
            help="Layers before the boundary, half of them by default; in a graph the node, or "
            "the module whose last node it is."
        ),
    ] = None,
    mlp: Annotated[
        bool, typer.Option("--mlp", help="The two edges inside an MLP as well.")
    ] = False,
    dtype: Annotated[
        str | None, typer.Option(help="Activation dtype, where the config states none.")
    ] = None,
    logits_dtype: Annotated[str, typer.Option(help="Dtype of the logits.")] = "float32",
    valid_vocab: Annotated[int | None, typer.Option(help="Tokens of a padded vocabulary.")] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write each edge's contract and plan to this folder.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build the edges of a real model from its config, or of a graph at a cut, and lower them.

    What the config does not say is an error that names the key, or an option. What the graph
    does not show is absent from the contract, and the plan falls back.

    Examples: `sembridge edges --model-config config.json --tp 4 --owner 0` ·
    `sembridge edges --model-config config.json --tp 2 --surface logprobs --json` ·
    `sembridge edges --graph program.pt2 --cut layers.3.mlp --domains mesh.json`
    """
    if (model_config is None) == (graph is None):
        raise BadInput("give --model-config or --graph, and not both")
    asked = surface or ("complete" if graph else "tokens")
    if asked not in SURFACES:
        raise BadInput(f"no such surface {surface!r}: one of {', '.join(SURFACES)}")
    document: dict[str, Any]
    if graph:
        if cut is None or domains is None:
            raise BadInput("a graph needs --cut and --domains")
        facts, edge = graph_edge(graph, cut, domains, SURFACES[asked], owner)
        found = [_lowered(facts.node, edge)]
        document = {"cut": facts}
        title = f"{facts.node} {facts.module}: {facts.element}"
        if facts.missing and not quiet:
            err.print(f"no facts: {facts.missing}", markup=False)
    else:
        if model_config is None or tp is None:
            raise BadInput("a model config needs --tp")
        config = _read_config(model_config)
        layers = None if cut is None else _layers(cut)
        try:
            model = read_model(config, dtype=dtype, valid_vocab=valid_vocab)
            deployment = Deployment(
                tp=tp, rows=rows, owner=owner, cut=layers, logits_dtype=logits_dtype
            )
            named = model_edges(model, deployment)
            named["result"] = result_edge(model, deployment, SURFACES[asked])
            if mlp:
                named |= mlp_edges(model, deployment)
            found = [_lowered(kind, edge) for kind, edge in named.items()]
        except BadInput as error:
            raise error.within(str(model_config)) from None
        document = {"model": model}
        title = (
            f"{model.name}: {model.hidden} hidden, {model.vocab} vocabulary, {model.dtype}, "
            f"TP {tp}, {rows} rows"
        )
    cost = graph_cost([(f["contract"], f["plan"]) for f in found])
    if export is not None:
        _export(export, found)
    if as_json:
        emit({**document, "edges": found, "graph_cost": cost})
        return
    out.print(
        table(
            title,
            ("edge", "placement", "facts", "ops", "cross bytes", "frames", "framed"),
            [
                (
                    f["edge"],
                    type(f["contract"].placement).__name__.lower(),
                    ", ".join(f["facts"]),
                    _counted(f["ops"]),
                    size_of(f["footprint"].cross_bytes),
                    f["footprint"].cross_startups,
                    size_of(f["wire"].framed),
                )
                for f in found
            ],
        )
    )
    if not quiet:
        if export is not None:
            err.print(f"written to {export}/: {', '.join(f['edge'] for f in found)}", markup=False)
        single = sum(f["footprint"].cross_startups for f in found)
        err.print(f"startups: {single} one by one, {cost.cross_startups} with equal routes packed")


def _layers(cut: str) -> int:
    try:
        return int(cut)
    except ValueError:
        raise BadInput(f"expected a number of layers, got {cut!r}", path="--cut") from None


def _read_config(path: Path) -> dict[str, Any]:
    io.decode(io.read_bytes(path), dict[str, object])
    try:
        return json.loads(io.read_bytes(path))
    except BadInput as error:
        raise error.within(str(path)) from None


def _lowered(kind: str, edge: NamedEdge) -> dict[str, Any]:
    contract = edge.contract()
    ob = resolve_valid(contract)
    plan, report = lower_valid(ob)
    facts = contract.facts
    present = {f: getattr(facts, f) for f in facts.__struct_fields__}
    return {
        "edge": kind,
        "contract": contract,
        "facts": [f"{name} ({fact.origin})" for name, fact in present.items() if fact is not None],
        "plan": plan,
        "ops": [type(op).__name__ for op in plan.ops],
        "verdict": report.verdict,
        "footprint": report.footprint,
        "wire": framed(ob, plan.ops),
    }


def _counted(ops: Sequence[str]) -> str:
    return " · ".join(op if n == 1 else f"{n} {op}" for op, n in Counter(ops).items())


def _export(folder: Path, found: list[dict[str, Any]]) -> None:
    for item in found:
        target = folder / str(item["edge"])
        make_folder(target)
        io.write(target / "contract.json", io.encode(item["contract"]))
        io.write(target / "plan.json", io.encode(item["plan"]))


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, or raise :class:`BadInput`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot create: {error.strerror}", file=str(folder)) from error


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(edges)
