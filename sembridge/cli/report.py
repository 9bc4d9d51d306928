"""The report: one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sembridge import io
from sembridge.cli.console import Quiet, err, progress


def report(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", dir_okay=False, help="File that the page is written to."),
    ] = Path("report.html"),
    results: Annotated[Path, typer.Option(help="Folder with results to show.")] = Path("results"),
    case: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="A folder with contract.json, and plan.json where there is one, to explore as "
            "well (repeat the option).",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML page: claims, tables, figures, and an explorer of plans.

    The explorer has the 72 cases, the 13 real edges and each --case, under every planner and with
    the targeted mutations: each plan step by step, which rule refuses it, and a counterexample.
    The page needs no network.

    Examples: `sembridge report -o report.html` · `sembridge report --case scratch/edges/result`
    """
    from paper_figs.report.explorer import cases, read_case
    from paper_figs.report.page import page, read_figures, read_results

    given = [read_case(folder) for folder in case or []]
    if not results.is_dir():
        err.print(f"no results in {results}: what was measured stands as not run", markup=False)
    found, figures = read_results(results), read_figures(results)
    with progress(quiet) as tick:
        explored = cases(given, tick)
    io.write(output, page(found, figures, explored))
    if not quiet:
        err.print(f"written to {output}", markup=False)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(report)
