"""Experiments: reproduce, and the matrix as files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.matrix import matrix as matrix_cases
from experiments.registry import REPORTED, Result, Settings, Standing, choose, load
from paper_figs.tables import write_result
from sembridge import io
from sembridge.cli.console import Json, Quiet, emit, err, out, progress, table
from sembridge.cli.models import make_folder
from sembridge.errors import BadInput
from sembridge.lowering import lower

MARKS = {
    Standing.HOLDS: "✓",
    Standing.DIFFERS: "✗ differs",
    Standing.NOT_VALIDATED: "not validated",
}


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME ...]", help="quick (default), all, or experiment names."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder that results are written to.")] = Path(
        "results"
    ),
    full: Annotated[
        bool, typer.Option("--full", help="Run what is sampled by default to its end.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Worker processes; -1 is one per core.")] = -1,
    seed: Annotated[int, typer.Option(help="Seed of whatever draws at random.")] = 0,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run experiments: the paper's numbers beside ours, written to results/.

    Exit 0 where every claim holds, 1 where one differs, 2 on bad input. Claims that cannot be
    validated here are counted and never pass.

    Examples: `sembridge reproduce table2` · `sembridge reproduce all --full` ·
    `sembridge reproduce --list`
    """
    if listed:
        for e in load().values():
            out.print(f"{e.name:<14} {'quick' if e.quick else '     '} {e.title}", markup=False)
        return
    try:
        chosen = choose(names or [])
    except KeyError as error:
        known = ", ".join(load())
        raise BadInput(f"no experiment {error.args[0]!r}: quick, all, {known}") from None
    make_folder(results)
    found: list[Result] = []
    with progress(quiet or as_json) as report:
        for e in chosen:
            settings = Settings(full=full, jobs=jobs, seed=seed, progress=report)
            started = time.perf_counter()
            result = e.run(settings)
            seconds = round(time.perf_counter() - started, 3)
            write_result(results, result, seconds)
            found.append(result)
            if not as_json:
                _print(result, quiet)
    counted = {s: sum(c.standing is s for r in found for c in r.claims) for s in Standing}
    if as_json:
        emit({"results": found, "claims": {str(s): n for s, n in counted.items()}})
    else:
        out.print(", ".join(f"{n} {s}" for s, n in counted.items()) + f"; written to {results}/")
    raise typer.Exit(1 if counted[Standing.DIFFERS] else 0)


def _print(result: Result, quiet: bool) -> None:
    for t in result.tables:
        out.print(table(t.title, t.columns, t.rows))
        if t.note and not quiet:
            out.print(t.note, style="dim")
    out.print(
        table(
            f"{result.name}: {result.how}",
            ("claim", "place", REPORTED, "ours", "standing"),
            [
                (c.name, c.where, c.paper, c.ours, MARKS[c.standing] + (c.note and f" ({c.note})"))
                for c in result.claims
            ],
        )
    )


def matrix(
    export: Annotated[
        Path | None,
        typer.Option(help="Write each case's contract and lowered plan to this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the 72 cases of the matrix, or write them as contract files.

    Example: `sembridge matrix --export cases/` then
    `sembridge check cases/partial.tp4.d2.v0/contract.json cases/partial.tp4.d2.v0/plan.json`
    """
    cases = list(matrix_cases())
    if export is not None:
        for case in cases:
            folder = export / case.id
            make_folder(folder)
            io.write(folder / "contract.json", io.encode(case.contract))
            io.write(folder / "plan.json", io.encode(lower(case.contract)))
        err.print(f"{len(cases)} cases written to {export}/")
    rows: list[Any] = [(c.id, c.obligation, c.tp, c.domains, c.demand) for c in cases]
    if as_json:
        emit(cases)
    elif export is None:
        out.print(table("The 72 cases", ("case", "obligation", "TP", "domains", "demanded"), rows))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(reproduce)
    app.command()(matrix)
