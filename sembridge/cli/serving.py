"""Surfaces of serving requests: the surface command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from sembridge import io
from sembridge.cli.console import Json, Quiet, emit, err, out, table
from sembridge.errors import BadInput
from sembridge.serving.batch import Step, read_batch, shown, summary
from sembridge.serving.surface import APIS, Api, Decision, decide


def surface(
    request: Annotated[
        Path | None,
        typer.Argument(metavar="[REQUEST]", help="Request body; - reads standard input."),
    ] = None,
    api: Annotated[
        str | None, typer.Option(help=f"Whose request it is: {' or '.join(APIS)}.")
    ] = None,
    defaults: Annotated[
        Path | None, typer.Option(help="The model's generation_config.json.")
    ] = None,
    engine: Annotated[
        Path | None, typer.Option(help="Engine options that change what a step delivers.")
    ] = None,
    batch: Annotated[
        Path | None, typer.Option(help="JSON Lines, one request a line; - reads standard input.")
    ] = None,
    vocab: Annotated[
        int | None, typer.Option(help="Columns of the logits: prices the batch's steps.")
    ] = None,
    lanes: Annotated[int, typer.Option(help="Producer lanes.")] = 1,
    rows: Annotated[int, typer.Option(help="Positions that a sequence adds to a step.")] = 1,
    dtype: Annotated[str, typer.Option(help="Dtype of the logits.")] = "float32",
    ids: Annotated[str, typer.Option(help="Dtype of the token ids.")] = "int32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Name the consumer surface that a serving request implies, and the field that decided.

    Effective parameters decide: the request, then the generation config, then the engine's
    defaults. An unknown field means complete logits; a malformed one is bad input.

    Examples: `sembridge surface request.json --api openai` ·
    `sembridge surface --batch requests.jsonl --vocab 200064 --lanes 4 --json`
    """
    if (request is None) == (batch is None):
        raise BadInput("give a request or --batch, and not both")
    chosen: Api | None = next((known for known in APIS if known == api), None)
    if chosen is None and (api is not None or batch is None):
        raise BadInput(f"must be one of {', '.join(APIS)}, not {api!r}", path="--api")
    config = None if defaults is None else _read(defaults)
    options = None if engine is None else _read(engine)
    if request is not None and chosen is not None:
        decision = _one(request, chosen, config, options)
        if as_json:
            emit(shown(decision))
        else:
            _print(decision, quiet)
    elif batch is not None:
        if rows < 1:
            raise BadInput(f"must be at least 1, not {rows}", path="--rows")
        step = None if vocab is None else Step(vocab=vocab, lanes=lanes, dtype=dtype, ids=ids)
        entries = list(read_batch(batch, api=chosen, defaults=config, engine=options))
        report = summary(entries, step, rows=rows)
        if as_json:
            emit(report)
        else:
            _print_batch(report, quiet)


def _read(path: Path) -> dict[str, Any]:
    try:
        return io.decode(io.read_bytes(path), dict[str, Any])
    except BadInput as error:
        raise error.within(error.file or str(path)) from None


def _one(
    path: Path, api: Api, defaults: dict[str, Any] | None, engine: dict[str, Any] | None
) -> Decision:
    body = _read(path)
    try:
        return decide(body, api=api, defaults=defaults, engine=engine)
    except BadInput as error:
        raise error.within(str(path)) from None


def _print(decision: Decision, quiet: bool) -> None:
    out.print(f"surface     {decision.surface}")
    out.print(f"paper       {decision.paper_surface}")
    for field, reason in zip(decision.decided_by, decision.reasons, strict=True):
        out.print(f"decided by  {_safe(field)}: {reason}")
    out.print(f"rule        {decision.rule}")
    if not quiet:
        for warning in decision.warnings:
            err.print(f"warning: {_safe(warning)}")


def _print_batch(report: dict[str, Any], quiet: bool) -> None:
    rows = [
        (
            _safe(request["id"]),
            request["surface"],
            request.get("paper_surface", ""),
            _safe(request.get("error") or ", ".join(request["decided_by"])),
        )
        for request in report["requests"]
    ]
    out.print(table("Requests", ("request", "surface", "paper", "decided by"), rows))
    if (joined := report["join"]) is None:
        out.print("join     none: nothing decodes")
    else:
        out.print(f"join     {joined['surface']} (paper: {joined['paper_surface']})")
    if report["refused"]:
        out.print(f"refused  {report['refused']}")
    if priced := report.get("bytes_per_step"):
        choices = {
            **{f"all {name}": cost for name, cost in priced["choices"].items()},
            "per request": priced["per_request"],
            "batch-wide join": priced["batch_wide"],
        }
        title = (
            f"Bytes per step: {priced['rows']} rows of {priced['vocab']} {priced['dtype']}, "
            f"{priced['lanes']} lanes"
        )
        cells = [(name, cost["mapped"], cost["owner"]) for name, cost in choices.items()]
        out.print(table(title, ("choice", "every lane", "one owner"), cells))
    if not quiet:
        for request in report["requests"]:
            for warning in request.get("warnings", ()):
                err.print(f"warning: {_safe(request['id'])}: {_safe(warning)}")


def _safe(text: str) -> str:
    """Text of a stranger's file for a terminal: no markup and no control characters."""
    return escape(text if text.isprintable() else json.dumps(text))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(surface)
