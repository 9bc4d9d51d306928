"""Commands of the bounded oracle: oracle, certify."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from oracle.certificate import Certificate
from oracle.certify import certify as make_certificate
from oracle.enumerate import programs
from oracle.family import cells
from oracle.optimum import MAX_STATES, figures
from oracle.program import BOUNDS, Bounds
from oracle.survey import Survey, Task, survey, total
from oracle.verify import verify
from sembridge import io
from sembridge.campaign import run_campaign
from sembridge.check import CHECKER
from sembridge.cli.console import (
    ContractPath,
    Json,
    Output,
    PlanPath,
    Quiet,
    emit,
    err,
    out,
    progress,
    table,
    where,
)
from sembridge.errors import BadInput
from sembridge.footprint import footprint_of
from sembridge.lowering import lower_valid
from sembridge.obligations import resolve_valid
from sembridge.verdict import Verdict


class EngineName(StrEnum):
    """Engines of :mod:`sembridge.campaign`."""

    SERIAL = "serial"
    LOCAL = "local"
    DASK = "dask"


COLUMNS = ("B_x", "N_x", "B_l", "N_l", "N_r", "N_o")


def _bounds(text: str | None) -> Bounds:
    if text is None:
        return BOUNDS
    try:
        producers, demanded, domains = (int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"--bounds takes P,C,D like 6,6,4, not {text!r}") from None
    if min(producers, demanded, domains) < 1:
        raise BadInput(f"--bounds are at least 1 each, not {text!r}")
    return Bounds(producers=producers, demanded=demanded, domains=domains)


def oracle(
    contract: ContractPath,
    shown: Annotated[
        int, typer.Option("--list", min=0, metavar="N", help="Show the N cheapest programs.")
    ] = 0,
    bounds: Annotated[
        str | None,
        typer.Option(metavar="P,C,D", help="Producers, demanded consumers, their domains."),
    ] = None,
    max_states: Annotated[
        int, typer.Option(min=1, help="End with exit code 3 past this many states.")
    ] = MAX_STATES,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count every program of the bounded family, and say where the lowered plan stands.

    Exit 0 the lowered plan is optimal, 1 it is not, 2 bad input or outside the bounds, 3 the
    budget ended. Listing names every program, so it is for small contracts.

    Examples: `sembridge oracle edge.json` · `sembridge oracle edge.json --list 5` ·
    `sembridge oracle edge.json --bounds 6,6,4 --json`
    """
    ob = resolve_valid(io.read_contract(contract))
    _bounds(bounds).check(ob)
    found = figures(ob, max_states=max_states)
    _, report = lower_valid(ob)
    lowered = report.footprint
    optimal = lowered == found.optimum
    document: dict[str, Any] = {
        "programs": found.programs,
        "sequences": found.sequences,
        "optimum": list(found.optimum),
        "pareto": [list(point) for point in found.pareto],
        "lowered": list(lowered),
        "lexicographic_optimal": optimal,
        "pareto_optimal": lowered in found.pareto,
    }
    if shown:
        listed = [(footprint_of(ob, p.ops), p.plan(ob)) for p in programs(ob).values()]
        listed.sort(key=lambda pair: (pair[0], msgspec.json.encode(pair[1])))
        document["list"] = [
            {"footprint": list(cost), "plan": plan} for cost, plan in islice(listed, shown)
        ]
    if as_json:
        emit(document)
    elif not quiet:
        out.print(f"{found.programs} programs in {found.sequences} sequences")
        rows = [(*point, "lowered" if point == lowered else "") for point in found.pareto]
        if lowered not in found.pareto:
            rows.append((*lowered, "lowered, dominated"))
        out.print(table("Pareto frontier, the optimum first", (*COLUMNS, ""), rows))
        for item in document.get("list", ()):
            out.print(f"{item['footprint']} {msgspec.json.encode(item['plan'].ops).decode()}")
    raise typer.Exit(0 if optimal else 1)


def family(
    bounds: Annotated[
        str | None,
        typer.Option(metavar="P,C,D", help="Producers, demanded consumers, their domains."),
    ] = None,
    execute: Annotated[
        int, typer.Option(min=0, help="Execute the programs of every N-th contract; 0: of none.")
    ] = 0,
    engine: Annotated[
        EngineName, typer.Option(help="One process, all cores, or a Dask cluster.")
    ] = EngineName.LOCAL,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; one per core by default.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A running Dask scheduler.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Resume from and record to this file.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Survey every contract within the bounds, up to symmetry.

    Exit 0 where every lowered plan is optimal, on the frontier and certified, and every executed
    program equals the reference; 1 otherwise. Interrupted with a journal, it goes on from there.

    Examples: `sembridge family --bounds 3,3,2` · `sembridge family --journal family.jsonl` ·
    `sembridge family --engine dask --scheduler tcp://10.0.0.1:8786`
    """
    chosen = _bounds(bounds)
    tasks = [Task(cell=cell, bounds=chosen, execute=execute) for cell in cells(chosen)]
    with progress(quiet or as_json) as report:
        surveys = run_campaign(
            tasks,
            survey,
            key=lambda task: task.key,
            result=Survey,
            engine=engine.value,
            jobs=jobs,
            scheduler=scheduler,
            journal=journal,
            progress=(lambda done, of: report(done, of, "family")) if report else None,
        )
    found = total(surveys)
    if as_json:
        emit(found)
    elif not quiet:
        values = [(name, getattr(found, name)) for name in Survey.__struct_fields__]
        rows = [
            (name.replace("_", " "), value if isinstance(value, int) else len(value))
            for name, value in values
        ]
        out.print(table("The bounded family", ("", "count"), rows))
        for names in (found.not_optimal, found.dominated, found.unproven, found.wrong):
            for name in names[:5]:
                out.print(name, markup=False)
    wrong = found.not_optimal or found.dominated or found.unproven or found.wrong
    raise typer.Exit(1 if wrong else 0)


def certify(
    contract: ContractPath,
    plan: PlanPath,
    against: Annotated[
        Path | None, typer.Option("--verify", metavar="CERT", help="Check this certificate.")
    ] = None,
    output: Output = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Certify that a plan is lexicographically minimal, at any size, or check a certificate.

    Exit 0 proven, 1 not proven (or the plan is illegal), 2 bad input.

    Examples: `sembridge certify edge.json plan.json -o cert.json` ·
    `sembridge certify edge.json plan.json --verify cert.json`
    """
    ob = resolve_valid(io.read_contract(contract))
    judged = io.read_plan(plan)
    report = CHECKER.check_valid(ob, judged)
    reasons = [f"{v.rule}{where(v)}: {v.message}" for v in report.violations]
    if report.verdict is not Verdict.LEGAL:
        reasons.insert(0, "the plan is illegal")
    if against is None:
        if reasons:
            for reason in reasons:
                err.print(reason, markup=False)
            raise typer.Exit(1)
        certificate = make_certificate(ob, judged)
        if output is None:
            emit(certificate)
        else:
            io.write(output, io.encode(certificate))
        return
    if output is not None:
        raise BadInput("--verify writes nothing; leave -o out")
    certificate = _read_certificate(against)
    reasons += verify(ob, judged, certificate)
    if as_json:
        emit({"proven": not reasons, "scope": certificate.scope, "reasons": reasons})
    elif not quiet:
        if reasons:
            out.print("not proven: " + "; ".join(reasons), markup=False)
        else:
            out.print(f"proven: minimal among {certificate.scope}", markup=False)
    raise typer.Exit(1 if reasons else 0)


def _read_certificate(path: Path) -> Certificate:
    try:
        return io.decode(io.read_bytes(path), Certificate)
    except BadInput as error:
        raise error.within(error.file or str(path)) from None


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (oracle, family, certify):
        app.command()(command)
