"""Results as files: JSON whole, records as CSV, tables as Markdown and LaTeX."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.registry import REPORTED, Result, Table
from sembridge import __version__, io

VERSIONED = ("numpy", "pandas", "msgspec", "z3-solver")


def write_result(folder: Path, result: Result, seconds: float) -> None:
    """Write ``<name>.json``, ``.md``, ``.tex`` and (of the records) ``.csv`` into ``folder``.

    All but the ``volatile`` part of the JSON is the same byte for byte on every run.

    Raises:
        BadInput: the folder cannot be written to.
    """
    document = {
        "format": "sembridge.result/1",
        "name": result.name,
        "how": result.how,
        "claims": result.claims,
        "tables": result.tables,
        "records": result.records,
        "volatile": {**result.volatile, **volatile(seconds)},
    }
    io.write(folder / f"{result.name}.json", io.encode(document))
    io.write(folder / f"{result.name}.md", markdown(result).encode())
    io.write(folder / f"{result.name}.tex", latex(result).encode())
    if result.records:
        import pandas as pd

        frame = pd.json_normalize([dict(r) for r in result.records])
        io.write(folder / f"{result.name}.csv", frame.to_csv(index=False).encode())


def volatile(seconds: float) -> dict[str, Any]:
    """What differs from run to run and from machine to machine."""
    return {
        "seconds": seconds,
        "sembridge": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "packages": {name: version(name) for name in VERSIONED},
    }


def _rows(result: Result) -> list[Table]:
    claims = Table(
        title=f"Claims: {result.name}",
        columns=("claim", "place", REPORTED, "ours", "standing", "note"),
        rows=tuple(
            (c.name, c.where, c.paper, c.ours, str(c.standing), c.note) for c in result.claims
        ),
    )
    return [*result.tables, claims]


def _cell(cell: Any) -> str:
    return "" if cell is None else str(cell)


def markdown(result: Result) -> str:
    """Every table of a result, then its claims, as Markdown."""
    parts = [f"How obtained: {result.how}.\n"]
    for t in _rows(result):
        lines = [f"## {t.title}\n", _pipes(t.columns), _pipes("---" for _ in t.columns)]
        lines += [_pipes(_cell(cell).replace("|", "\\|") for cell in row) for row in t.rows]
        parts.append("\n".join(lines) + "\n" + (f"\n{t.note}\n" if t.note else ""))
    return "\n".join(parts)


def _pipes(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


_SPECIAL = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "\\": r"\textbackslash{}"}
)


def latex(result: Result) -> str:
    """Every table of a result as LaTeX ``table`` environments (booktabs)."""
    parts: list[str] = []
    for t in _rows(result):
        body = [" & ".join(_cell(c).translate(_SPECIAL) for c in row) + r" \\" for row in t.rows]
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    rf"\caption{{{t.title.translate(_SPECIAL)}}}",
                    rf"\begin{{tabular}}{{{'l' * len(t.columns)}}}",
                    r"\toprule",
                    " & ".join(c.translate(_SPECIAL) for c in t.columns) + r" \\",
                    r"\midrule",
                    *body,
                    r"\bottomrule",
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(parts) + "\n"
