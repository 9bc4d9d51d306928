"""Commands on one contract and one plan: lower, check, show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from experiments.matrix import byte_only, layout_only
from sembridge import io
from sembridge.check import check as check_plan
from sembridge.cli.console import (
    EXIT,
    ContractPath,
    Json,
    Output,
    PlanPath,
    Quiet,
    emit,
    emit_bytes,
    err,
    out,
    where,
)
from sembridge.draw import draw_svg, draw_text
from sembridge.errors import BadInput
from sembridge.lowering import POLICIES, lower_valid
from sembridge.obligations import resolve_valid
from sembridge.selector import Fabric, select
from sembridge.verdict import Verdict

Planner = Literal[
    "semantic",
    "reference",
    "mapped-copies",
    "+demand",
    "+multicast",
    "+substitution",
    "layout-only",
    "byte-only",
]


MAX_SHOWN = 200
"""Most violations that are printed one by one."""


def lower(
    contract: ContractPath,
    policy: Annotated[
        Planner, typer.Option(help="Which planner; from mapped-copies on, the capability ladder.")
    ] = "semantic",
    fabric: Annotated[
        Path | None,
        typer.Option(help="Choose among the legal plans by equation 7 for this fabric file."),
    ] = None,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Lower a contract to a checked plan (Algorithm 1).

    The baselines `layout-only` and `byte-only` are emitted unchecked: judging them is `check`'s.

    Examples: `sembridge lower edge.json -o plan.json` ·
    `sembridge lower edge.json --policy reference` ·
    `sembridge lower edge.json --fabric fabric.json`
    """
    read = io.read_contract(contract)
    ob = resolve_valid(read)
    if fabric is not None:
        if policy != "semantic":
            raise BadInput("--fabric chooses the policy itself; leave --policy out")
        choice = select(ob, _read_fabric(fabric))
        plan = choice.chosen.plan
        if not quiet:
            err.print(choice.why, markup=False)
    elif policy == "layout-only":
        plan = layout_only(read)
    elif policy == "byte-only":
        plan = byte_only(read)
    else:
        plan, _ = lower_valid(ob, POLICIES[policy])
    if output is None:
        emit(plan)
    else:
        io.write(output, io.encode(plan))


def _read_fabric(path: Path) -> Fabric:
    try:
        return io.decode(io.read_bytes(path), Fabric)
    except BadInput as error:
        raise error.within(error.file or str(path)) from None


def check(
    contract: ContractPath, plan: PlanPath, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Check a plan against a contract: verdict, footprint, every violation.

    Exit 0 legal, 1 illegal, 2 bad input. Example: `sembridge check edge.json plan.json --json`
    """
    report = check_plan(io.read_contract(contract), io.read_plan(plan))
    if as_json:
        emit(report)
    elif not quiet:
        colour = "green" if report.verdict is Verdict.LEGAL else "red"
        out.print(f"[bold {colour}]{report.verdict}[/]")
        for v in report.violations[:MAX_SHOWN]:
            out.print(f"  {v.rule}{where(v)}: {v.message}", markup=False)
        if len(report.violations) > MAX_SHOWN:
            out.print(f"  and {len(report.violations) - MAX_SHOWN} more (--json lists them)")
        f = report.footprint
        out.print(
            f"cross {f.cross_bytes} B in {f.cross_startups}, local {f.local_bytes} B in "
            f"{f.local_startups}, {f.reductions} reductions, {f.ops} ops"
        )
    raise typer.Exit(EXIT[report.verdict])


def show(contract: ContractPath, plan: PlanPath, output: Output = None) -> None:
    """Draw a plan: as text in the terminal, or as a picture with `-o plan.svg`.

    Domains are boxes, ops are numbered, sizes stand on the arrows. An illegal plan is drawn too,
    its violations below. Example: `sembridge show edge.json plan.json -o plan.svg`
    """
    read, ops = io.read_contract(contract), io.read_plan(plan)
    if output is None:
        emit_bytes(draw_text(read, ops).encode())
    elif output.suffix == ".svg":
        io.write(output, draw_svg(read, ops))
    else:
        raise BadInput("expected a name that ends in .svg", file=str(output))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(lower)
    app.command()(check)
    app.command()(show)
