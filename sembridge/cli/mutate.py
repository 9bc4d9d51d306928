"""Mutation campaigns: the mutate command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from experiments.mutations import SOURCES, subject_of, subjects
from mutations.campaign import (
    Class,
    Judged,
    Options,
    Record,
    choose_operators,
    judge_mutant,
    mutant_of,
    run,
)
from mutations.frames import MUTANTS, tallies
from mutations.fuzz import FRAMES, fuzz
from mutations.operators import OPERATORS
from mutations.report import (
    Matrix,
    as_csv,
    by_operator,
    checkers_noticed,
    diff,
    jsonl,
    judge_matrix,
    necessary_rules,
    page,
    records_of,
    rule_matrix,
    summarize,
    svg,
)
from mutations.subjects import Subject
from mutations.truth import prover_installed
from sembridge import io
from sembridge.campaign import Engine
from sembridge.check import check
from sembridge.cli.console import Json, Quiet, emit, err, out, progress, table, where
from sembridge.cli.models import make_folder
from sembridge.draw import draw_text
from sembridge.errors import BadInput
from sembridge.verdict import Verdict

ENGINES: tuple[str, ...] = get_args(Engine)


def mutate(
    contract: Annotated[Path | None, typer.Argument(metavar="CONTRACT")] = None,
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN")] = None,
    matrix: Annotated[bool, typer.Option("--matrix", help="The 72 cases.")] = False,
    edges: Annotated[
        bool, typer.Option("--edges", help="The 13 real edges, over fewer columns.")
    ] = False,
    family: Annotated[
        bool, typer.Option("--family", help="Small contracts with every surface and obligation.")
    ] = False,
    operators: Annotated[
        list[str] | None, typer.Option(help="Operators (repeat the option); all by default.")
    ] = None,
    order: Annotated[int, typer.Option(min=1, max=2, help="Mutations in one mutant.")] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Mutants a subject, drawn by the seed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.")] = 0,
    prove: Annotated[
        bool | None, typer.Option(help="Ask the SMT model as well; where it is installed.")
    ] = None,
    engine: Annotated[str, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = "local",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; one per core by default.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler (engine dask).")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Resume from here, and write progress to it.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder for JSONL, CSV, SVG and the HTML report.")
    ] = None,
    fail_under: Annotated[
        float, typer.Option(min=0, max=100, help="Exit 1 below this score in percent.")
    ] = 100.0,
    show: Annotated[
        str | None, typer.Option(metavar="ID", help="Show one mutant and its verdicts.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="With --show: write its contract and plan here.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the operators and stop.")] = False,
    frames: Annotated[
        bool,
        typer.Option(
            "--frames", help="Frames and handshakes, and --limit corrupt streams (10,000)."
        ),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Mutate plans and contracts, and see whether the checker notices.

    Ground truth is execution on value-revealing inputs, identity, a tally of deliveries and the
    SMT model, never the checker. Exit 0 where nothing wrong was accepted and nothing was rejected
    without a stated reason, 1 otherwise or below --fail-under, 2 on bad input.

    Examples: `sembridge mutate --matrix --edges --results results/mutations` ·
    `sembridge mutate edge.json plan.json --operators drop-delivery` ·
    `sembridge mutate --show 'matrix/replica.tp2.d1.v0/semantic:stale-tag:2'` ·
    `sembridge mutate --frames`
    """
    if frames:
        _frames(FRAMES if limit is None else limit, seed, listed, as_json, quiet)
        return
    given = _given(contract, plan)
    if listed:
        _list(as_json)
        return
    prove = prover_installed() if prove is None else prove
    if show is not None:
        _show(show, given, prove, export, as_json)
        return
    if engine not in ENGINES:
        raise BadInput(f"no such engine {engine!r}; there are {', '.join(ENGINES)}")
    chosen = {"matrix": matrix, "edges": edges, "family": family}
    sources = [name for name in SOURCES if chosen[name]]
    mutated = [given] if given else []
    mutated += [
        s for name in sources or ([] if given else SOURCES) for s in subjects(name).values()
    ]
    options = Options(
        operators=choose_operators(operators or []),
        order=order,
        limit=limit,
        seed=seed,
        prove=prove,
    )
    with progress(quiet or as_json) as tick:
        judged = run(
            mutated,
            options,
            engine=engine,  # pyright: ignore[reportArgumentType]
            jobs=jobs,
            scheduler=scheduler,
            journal=journal,
            progress=tick and (lambda done, of: tick(done, of, "subjects")),
        )
    if results is not None:
        _write(results, judged, mutated)
    summary = summarize(judged)
    if as_json:
        emit({"summary": summary, "checkers": checkers_noticed(records_of(judged))})
    else:
        _print(judged, quiet)
    raise typer.Exit(0 if summary.sound and summary.score >= fail_under else 1)


def _given(contract: Path | None, plan: Path | None) -> Subject | None:
    if contract is None:
        return None
    if plan is None:
        raise BadInput("a plan goes with the contract")
    read, ops = io.read_contract(contract), io.read_plan(plan)
    report = check(read, ops)
    if report.verdict is not Verdict.LEGAL:
        rules = ", ".join(sorted({v.rule for v in report.violations}))
        raise BadInput(f"only an accepted plan can be mutated; this breaks {rules}", file=str(plan))
    return Subject(name=str(contract), contract=read, plan=ops, files=f"{contract} {plan}")


def _list(as_json: bool) -> None:
    columns = ("name", "on", "says", "expects", "source", "example")
    rows = [[getattr(o, column) for column in columns] for o in OPERATORS.values()]
    if as_json:
        emit([dict(zip(columns, row, strict=True)) for row in rows])
        return
    shown = [(*row[:3], " ".join(row[3]) or "legal", row[4]) for row in rows]
    out.print(table(f"{len(rows)} operators", columns[:-1], shown))


def _frames(streams: int, seed: int, listed: bool, as_json: bool, quiet: bool) -> None:
    """Mutants of frames and handshakes, and corrupt streams, against a real receiver."""
    columns = ("name", "on", "says", "refused", "stale")
    if listed:
        shown = [[getattr(m, column) for column in columns] for m in MUTANTS.values()]
        if as_json:
            emit([dict(zip(columns, row, strict=True)) for row in shown])
        else:
            rows = [(*row[:3], " ".join(row[3]) or "passed over") for row in shown]
            out.print(table(f"{len(rows)} mutants of frames", columns[:-1], rows))
        return
    with progress(quiet or as_json) as tick:
        found = tallies(progress=tick and (lambda done, of: tick(done, of, "mutants")))
        fuzzed = fuzz(streams, seed, progress=tick and (lambda done, of: tick(done, of, "streams")))
    amiss = sum(t.amiss for t in found)
    if as_json:
        rows = [
            {"name": t.mutant.name, "made": t.made, "reasons": t.reasons, "amiss": t.amiss}
            for t in found
        ]
        emit({"mutants": rows, "fuzz": fuzzed, "clean": not amiss and fuzzed.clean})
    else:
        if not quiet:
            rows = [
                (t.mutant.name, t.mutant.says, t.made, _counted(t.reasons), t.amiss or "")
                for t in found
            ]
            names = ("mutant", "what is wrong", "made", "refused for", "amiss")
            out.print(table("Frames and handshakes", names, rows))
        out.print(f"{sum(t.made for t in found)} mutants of {len(found)} kinds, {amiss} amiss")
        out.print(
            f"{fuzzed.streams} corrupt streams: {_counted(fuzzed.reasons)}; {fuzzed.wrong} wrong, "
            f"{fuzzed.late} late, {fuzzed.threads} threads and {fuzzed.descriptors} descriptors "
            "left",
            markup=False,
        )
    raise typer.Exit(0 if not amiss and fuzzed.clean else 1)


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in reasons.items())


def _show(
    mutant_id: str, given: Subject | None, prove: bool, export: Path | None, as_json: bool
) -> None:
    subject = given or subject_of(mutant_id)
    mutant = mutant_of(mutant_id, subject)
    record = judge_mutant(subject, mutant, prove=prove)
    changed = diff(subject, mutant)
    if export is not None:
        make_folder(export)
        io.write(export / "contract.json", io.encode(mutant.contract))
        io.write(export / "plan.json", io.encode(mutant.plan))
    if as_json:
        emit({"record": record, "diff": changed, "contract": mutant.contract, "plan": mutant.plan})
        return
    try:
        drawn = draw_text(mutant.contract, mutant.plan)
        found = check(mutant.contract, mutant.plan).violations
    except BadInput as error:
        drawn, found = f"{error}\n", ()
    out.print(drawn, markup=False)
    out.print(changed, markup=False)
    out.print()
    for line in _verdicts(record):
        out.print(line, markup=False)
    for v in found:
        out.print(f"  {v.rule}{where(v)}: {v.message}", markup=False)
    out.print(f"replay: {subject.replay(mutant_id)} --export DIR", markup=False)
    out.print("        sembridge check DIR/contract.json DIR/plan.json", markup=False)


def _verdicts(record: Record) -> list[str]:
    return [
        f"class: {record.outcome}" + (f" ({record.why})" if record.why else ""),
        f"execution: {record.execution}; proof: {record.proof}",
        f"wrong: {', '.join(record.wrong) or 'nothing'}",
        f"checker: {', '.join(record.rules) or 'legal'}",
    ]


def _write(folder: Path, judged: list[Judged], mutated: list[Subject]) -> None:
    make_folder(folder)
    records = records_of(judged)
    io.write(folder / "mutants.jsonl", jsonl(records))
    io.write(folder / "mutants.csv", as_csv(records))
    io.write(folder / "operators-rules.svg", svg(rule_matrix(records)))
    io.write(folder / "operators-judges.svg", svg(judge_matrix(records)))
    io.write(folder / "report.html", page(judged, mutated, "Mutation campaign"))
    err.print(f"written to {folder}/", markup=False)


def _print(judged: list[Judged], quiet: bool) -> None:
    records, summary = records_of(judged), summarize(judged)
    alarming = [
        r
        for r in records
        if r.outcome in (Class.MISSED, Class.ERROR, Class.UNKNOWN) or r.unexplained
    ]
    if alarming:
        rows = [(r.id, r.outcome, r.why, " ".join(r.rules)) for r in alarming[:50]]
        out.print(table("Survivors", ("mutant", "class", "why", "rules"), rows))
    if not quiet:
        out.print(_drawn(rule_matrix(records)))
        out.print(_drawn(judge_matrix(records)))
        columns = ("operator", "on", "mutants", *map(str, Class))
        shown = [(name, on, *counts) for name, on, _, *counts in by_operator(records)]
        out.print(table("Operators", columns, shown))
        noticed = [n for n in checkers_noticed(records) if n.standing != "noticed"]
        out.print(
            table(
                "Weakened checkers that no wrong mutant tells",
                ("checker", "standing", "stated", "example or proof"),
                [(n.checker, n.standing, n.stated, n.example) for n in noticed],
            )
        )
        cover = necessary_rules(records)
        out.print(f"smallest set of rules that kills everything: {len(cover)}", markup=False)
    counted = ", ".join(f"{n} {name}" for name, n in summary.classes.items() if n)
    out.print(f"{summary.mutants} mutants of {summary.subjects} subjects: {counted}")
    out.print(
        f"score {summary.score} %, {summary.unexplained} unexplained, "
        f"{summary.disagreements} disagreements of execution and proof"
    )
    for line in summary.insane:
        out.print(f"insane: {line}", style="red", markup=False)


def _drawn(matrix: Matrix) -> Any:
    used = [i for i, _ in enumerate(matrix.columns) if any(row[i] for row in matrix.cells)]
    return table(
        matrix.title,
        ("operator", *(matrix.columns[i] for i in used)),
        [
            (name, *(row[i] or "" for i in used))
            for name, row in zip(matrix.rows, matrix.cells, strict=True)
        ],
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(mutate)
