"""What the commands share: options, output, and tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sembridge import io
from sembridge.verdict import Verdict, Violation

if TYPE_CHECKING:
    from rich.table import Table

ContractPath = Annotated[
    Path, typer.Argument(metavar="CONTRACT", help="Contract file; - reads standard input.")
]
PlanPath = Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but results.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", dir_okay=False, help="Write here instead of stdout."),
]


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        """Leave a closed pipe to the program's own exit code; rich would end with 1."""
        raise BrokenPipeError


PIPED = 100
"""Columns of a table where neither a terminal nor ``COLUMNS`` says."""

_asked = sys.stdout.isatty() or "COLUMNS" in os.environ
out = _Terminal(soft_wrap=True, highlight=False, width=None if _asked else PIPED)
err = Console(stderr=True, soft_wrap=True, highlight=False)

EXIT = {Verdict.LEGAL: 0, Verdict.ILLEGAL: 1, Verdict.UNKNOWN: 3}


def emit(document: Any) -> None:
    """A document as indented JSON on stdout."""
    emit_bytes(io.encode(document))


def emit_bytes(data: bytes) -> None:
    """Bytes on stdout, as they are."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A plain table for the terminal."""
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*["" if cell is None else str(cell) for cell in row])
    return drawn


def where(violation: Violation) -> str:
    """Op and endpoint of a violation, in words."""
    op = "" if violation.op is None else f" op {violation.op + 1}"
    return f"{op} {violation.endpoint}" if violation.endpoint else op


@contextmanager
def progress(quiet: bool) -> Generator[Any]:
    """A progress callback (done, of, label), drawn on stderr and only on a terminal."""
    if quiet or not err.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(done: int, of: int, label: str) -> None:
            bar.update(task, completed=done, total=of, description=label)

        yield report
