"""Experiments: reproduce, render, and the matrix as files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments import documents
from experiments.documents import Document
from experiments.ledger import Line, Standing, count, ledger, line
from experiments.matrix import matrix as matrix_cases
from experiments.registry import Experiment, Settings, choose, load
from paper_figs.figures import write_figures
from paper_figs.tables import CHECKS, CLAIMS, check_rows, claim_rows, write_csv, write_tables
from sembridge import io
from sembridge.cli.console import Json, Quiet, emit, err, out, progress, table
from sembridge.cli.models import make_folder
from sembridge.errors import BadInput
from sembridge.lowering import lower

Results = Annotated[Path, typer.Option(help="Folder of results.")]


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME ...]", help="quick (default), all, or experiment names."),
    ] = None,
    results: Results = Path("results"),
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Compare with the results in the folder; leave them alone."),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Run what is sampled by default to its end.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Worker processes; -1 is one per core.")] = -1,
    seed: Annotated[int, typer.Option(help="Seed of whatever draws at random.")] = 0,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run experiments: each claim of the paper beside ours, written to results/.

    Exit 0 where no claim differs, 1 where one does (with `--diff`: where anything outside
    `volatile` does), 2 on bad input. What is not validated, not run or undecided is counted and
    never passes. A run that was interrupted goes on where it was when it is started again.

    Examples: `sembridge reproduce table2` · `sembridge reproduce all --full` ·
    `sembridge reproduce table2 edges --diff` · `sembridge reproduce --list`
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
    settings = Settings(full=full, jobs=jobs, seed=seed)
    unfinished = results / ".unfinished" / documents.fingerprint(settings)
    unfinished.mkdir(parents=True, exist_ok=True)
    target = unfinished / "results" if diff else results
    found: list[Document] = []
    for e in chosen:
        doc = _run(e, settings, target, unfinished, quiet or as_json)
        found.append(doc)
        if not as_json and not diff:
            _print(doc, quiet)
    differing = (
        list(documents.differences(results, target, [d.name for d in found])) if diff else []
    )
    if not diff:
        chosen_names = [doc.name for doc in found]
        write_csv(results, chosen_names)
        write_tables(results, chosen_names)
    shutil.rmtree(unfinished)
    if not any(unfinished.parent.iterdir()):
        unfinished.parent.rmdir()
    claims = count(_ledger_lines(found))
    checks = count(c for doc in found for c in doc.checks)
    if as_json:
        emit({"results": found, "claims": claims, "checks": checks, "differences": differing})
    elif diff:
        for text in differing:
            out.print(text, markup=False)
        out.print(f"{len(differing)} differences from {results}/ outside volatile")
    else:
        out.print(f"Claims of the paper: {_counted(claims)}")
        out.print(f"Checks of this kit's own: {_counted(checks)}")
        out.print(f"Written to {results}/")
    differs = len(differing) if diff else claims[Standing.DIFFERS] + checks[Standing.DIFFERS]
    raise typer.Exit(1 if differs else 0)


def _run(
    e: Experiment, settings: Settings, target: Path, unfinished: Path, silent: bool
) -> Document:
    """Run an experiment, or take what an interrupted run of the same code had finished."""
    done = unfinished / f"{e.name}.done"
    if done.exists() and (target / f"{e.name}.json").exists():
        return documents.read(target, e.name)
    with progress(silent) as report:
        started = time.perf_counter()
        result = e.run(
            Settings(
                full=settings.full,
                jobs=settings.jobs,
                seed=settings.seed,
                progress=report,
                journals=unfinished,
            )
        )
        doc = documents.document(result, settings, time.perf_counter() - started)
    documents.write(target, doc, result)
    done.touch()
    return doc


def _ledger_lines(found: Sequence[Document]) -> list[Line]:
    """Every claim of the ledger, as this run left it."""
    known = {one.name: one for doc in found for one in (*doc.claims, *doc.volatile.claims)}
    return [known.get(name) or line(claim, None) for name, claim in ledger().items()]


def _counted(counts: dict[Standing, int]) -> str:
    return ", ".join(f"{n} {standing}" for standing, n in counts.items())


def _print(doc: Document, quiet: bool) -> None:
    for t in (*doc.tables, *doc.volatile.tables):
        out.print(table(t.title, t.columns, t.rows))
        if t.note and not quiet:
            out.print(t.note, style="dim")
    claims = (*doc.claims, *doc.volatile.claims)
    if claims:
        out.print(table(f"{doc.name}: {doc.how}", CLAIMS, claim_rows(claims)))
    if doc.checks:
        out.print(table(f"{doc.name}: checks of this kit's own", CHECKS, check_rows(doc.checks)))


STEPS = {"csv": write_csv, "tables": write_tables, "figures": write_figures}
"""Steps from raw results to what is printed; to add one, add an entry."""


def render(
    steps: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STEP ...]", help="csv, tables, figures; all by default."),
    ] = None,
    results: Results = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Make CSV, tables and figures anew from the raw results of a folder; nothing is run.

    Examples: `sembridge render` · `sembridge render figures --results results`
    """
    unknown = set(steps or ()) - STEPS.keys()
    if unknown:
        raise BadInput(f"no step {min(unknown)!r}: {', '.join(STEPS)}")
    found = documents.names(results)
    for step in steps or STEPS:
        STEPS[step](results, found)
        if not quiet:
            err.print(f"{step}: {len(found)} results")


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
    app.command()(render)
    app.command()(matrix)
