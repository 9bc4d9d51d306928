"""Results as tables: raw rows as CSV, documents as Markdown and LaTeX, the ledger as a whole.

Each step reads files and writes files, so each can be run again by itself. What depends on times
stands in ``volatile/``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from experiments import documents
from experiments.documents import Document
from experiments.ledger import REPORTED, Line, ledger, line, shown
from experiments.registry import Table
from sembridge import io

CLAIMS = ("claim", "place", REPORTED, "ours", "class", "verdict", "note")
CHECKS = ("check", "place", "expected", "ours", "verdict", "note")


def claim_rows(lines: Iterable[Line]) -> list[tuple[str, ...]]:
    """Claims of the paper under ``CLAIMS``."""
    return [
        (
            c.says,
            c.where,
            shown(c.paper, c.ci95),
            shown(c.ours),
            str(c.class_),
            str(c.standing),
            c.note,
        )
        for c in lines
    ]


def check_rows(lines: Iterable[Line]) -> list[tuple[str, ...]]:
    """Checks of this kit's own under ``CHECKS``."""
    return [
        (c.says, c.where, shown(c.expected), shown(c.ours), str(c.standing), c.note) for c in lines
    ]


def write_csv(folder: Path, names: Iterable[str]) -> None:
    """Raw rows, ``NAME.jsonl``, as tidy ``NAME.csv``.

    Raises:
        BadInput: the folder cannot be written to.
    """
    import pandas as pd

    for name in names:
        for place in (folder, folder / "volatile"):
            raw, target = place / f"{name}.jsonl", place / f"{name}.csv"
            if raw.exists():
                rows = [msgspec.json.decode(row) for row in raw.read_bytes().splitlines()]
                io.write(target, pd.json_normalize(rows).to_csv(index=False).encode())
            else:
                target.unlink(missing_ok=True)


def write_tables(folder: Path, names: Iterable[str]) -> None:
    """Documents, ``NAME.json``, as ``NAME.md`` and ``NAME.tex``; then the whole ledger.

    Raises:
        BadInput: a document is missing or broken, or the folder cannot be written to.
    """
    for name in names:
        doc = documents.read(folder, name)
        how = f"How obtained: {doc.how}. {doc.manifest.command}"
        _write(folder / name, how, [*doc.tables, *_claims(doc)])
        timed = doc.volatile
        if timed.tables or timed.claims:
            tables = [*timed.tables, _claim_table(f"Claims on times: {name}", timed.claims)]
            _write(folder / "volatile" / name, how, tables)
    _write(
        folder / "volatile" / "claims",
        "Every quantitative claim of the paper, with what the results in this folder say",
        [_claim_table("The claims ledger", all_claims(folder))],
    )


def all_claims(folder: Path) -> list[Line]:
    """Every claim of the ledger as the documents in a folder have it, in the ledger's order."""
    found = {
        one.name: one
        for name in documents.names(folder)
        for one in documents.read(folder, name).lines
    }
    return [found.get(name) or line(claim, None) for name, claim in ledger().items()]


def _claims(doc: Document) -> list[Table]:
    tables: list[Table] = []
    if doc.claims:
        tables.append(_claim_table(f"Claims: {doc.name}", doc.claims))
    if doc.checks:
        title = f"Checks of this kit's own: {doc.name}"
        tables.append(Table(title=title, columns=CHECKS, rows=tuple(check_rows(doc.checks))))
    return tables


def _claim_table(title: str, lines: Iterable[Line]) -> Table:
    return Table(title=title, columns=CLAIMS, rows=tuple(claim_rows(lines)))


def _write(stem: Path, how: str, tables: Sequence[Table]) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    io.write(stem.with_suffix(".md"), markdown(how, tables).encode())
    io.write(stem.with_suffix(".tex"), latex(tables).encode())


def _cell(cell: Any) -> str:
    return "" if cell is None else str(cell)


def markdown(how: str, tables: Iterable[Table]) -> str:
    """Tables as Markdown."""
    parts = [f"{how}\n"]
    for t in tables:
        lines = [f"## {t.title}\n", _pipes(t.columns), _pipes("---" for _ in t.columns)]
        lines += [_pipes(_cell(cell).replace("|", "\\|") for cell in row) for row in t.rows]
        parts.append("\n".join(lines) + "\n" + (f"\n{t.note}\n" if t.note else ""))
    return "\n".join(parts)


def _pipes(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


_SPECIAL = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "\\": r"\textbackslash{}", "^": r"\textasciicircum{}"}
    | {"→": r"$\to$", "↓": r"$\downarrow$", "≤": r"$\le$", "×": r"$\times$", "·": r"$\cdot$"}
    | {"−": "$-$", "⇒": r"$\Rightarrow$", "α": r"$\alpha$", "β": r"$\beta$", "…": r"\dots{}"}
)
"""What LaTeX reads otherwise, or does not have in its text fonts."""


def latex(tables: Iterable[Table]) -> str:
    """Tables as LaTeX ``table`` environments (booktabs)."""
    parts: list[str] = []
    for t in tables:
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
