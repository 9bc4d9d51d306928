"""What will run here: the doctor command."""

from __future__ import annotations

import typer
from rich.markup import escape

from sembridge.cli.console import Json, Quiet, emit, out, table
from sembridge.live.doctor import diagnose


def doctor(as_json: Json = False, quiet: Quiet = False) -> None:
    """Say what a live run finds on this machine, and what will run.

    Nothing is started, and a broken installation is a line of the report. Exits with 0 whatever
    it finds.

    Examples: `sembridge doctor` · `sembridge doctor --json`
    """
    found = diagnose()
    if as_json:
        emit(
            {
                "findings": found.findings,
                "abilities": [
                    {"name": a.name, "runs": a.runs, "missing": a.missing} for a in found.abilities
                ],
                "note": found.note,
            }
        )
        return
    if not quiet:
        rows = [(f.name, f.state, escape(f.detail)) for f in found.findings]
        out.print(table("Found", ("what", "", "detail"), rows))
    cells = [(a.name, "yes" if a.runs else "no", ", ".join(a.missing)) for a in found.abilities]
    out.print(table("Will run", ("what", "", "lacks"), cells))
    out.print(found.note)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(doctor)
