"""The report as one HTML page that needs no network: text first, then a script that explores.

Names come from files and may be hostile: what is written here is escaped, the script shows text
as text, and the page's own policy lets no other script, style or address be used.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from experiments import documents
from experiments.documents import Document
from experiments.ledger import Line, Standing, count, ledger, line
from experiments.registry import Table, load
from mutations.operators import PAPER_EIGHT
from paper_figs.figures import FIGURES
from paper_figs.report.explorer import Case, Run
from paper_figs.tables import CHECKS, CLAIMS, check_rows, claim_rows
from sembridge import io
from sembridge.verdict import Verdict

LONG = 16
"""A table with more rows than this is folded."""

MARKS = {Standing.HOLDS: "✓", Standing.DIFFERS: "✗", Standing.UNDECIDED: "?"}

Rows = Iterable[Sequence[str]]


class Figure(Struct, frozen=True, kw_only=True):
    """An SVG picture and what it shows."""

    title: str
    svg: bytes


def read_results(folder: Path) -> list[Document]:
    """The results of a folder.

    Raises:
        BadInput: a file that is no result.
    """
    return [documents.read(folder, name) for name in documents.names(folder)]


def read_figures(folder: Path) -> list[Figure]:
    """The figures that ``sembridge render`` drew into a results folder, in their order."""
    found: list[Figure] = []
    for name, draw in FIGURES.items():
        path = folder / "figures" / f"{name}.svg"
        if path.exists():
            title = ". ".join(filter(None, (name, draw.__doc__)))
            found.append(Figure(title=title, svg=io.read_bytes(path)))
    return found


def page(results: Sequence[Document], figures: Sequence[Figure], cases: Sequence[Case]) -> bytes:
    """The page; equal input gives equal bytes, and parts marked volatile hold what times decide."""
    style, script = _part("style.css"), _part("explorer.js")
    policy = (
        f"default-src 'none'; img-src data:; script-src {_hash(script)}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    known = {c.name: c for doc in results for c in doc.claims}
    timed = {c.name: c for doc in results for c in doc.volatile.claims}
    claims = [
        known.get(name) or line(claim, None)
        for name, claim in ledger().items()
        if name not in timed
    ]
    return (
        Template(_part("page.html"))
        .substitute(
            policy=escape(policy),
            style=style,
            script=script,
            summary=_summary([*claims, *timed.values()]),
            claims="\n".join(_claims(claims)),
            timed_claims="\n".join(_claims(timed.values(), ", as measured on this machine")),
            checks="\n".join(_checks(results)) or _none("results"),
            tables="\n".join(_table(t) for doc in results for t in doc.tables) or _none("results"),
            timed_tables="\n".join(_table(t) for doc in results for t in doc.volatile.tables),
            figures="\n".join(map(_figure, figures)) or _none("figures"),
            targeted="\n".join(_targeted(cases)),
            verdicts=_verdicts(cases),
            data=_data(cases),
            provenance=_provenance(results),
        )
        .encode()
    )


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _data(cases: Sequence[Case]) -> str:
    """JSON that can stand inside a script element: no ``<``, so no tag can end it."""
    text = msgspec.json.encode(cases).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _none(what: str) -> str:
    return f"<p>No {what} here: <code>sembridge reproduce</code> writes them.</p>"


# Claims ------------------------------------------------------------------------------------------


def _summary(claims: Iterable[Line]) -> str:
    return "".join(
        f"<li><strong>{n}</strong> {_standing(s)}</li>" for s, n in count(claims).items()
    )


def _standing(standing: str) -> str:
    mark = MARKS.get(Standing(standing), "–")
    return f"<span class='{standing.replace(' ', '-')}'>{mark} {escape(standing)}</span>"


def _claims(claims: Iterable[Line], how: str = "") -> Iterator[str]:
    """Claims of the paper by the section, table or figure that they stand in."""
    by_place: dict[str, list[Line]] = {}
    for claim in claims:
        by_place.setdefault(claim.where, []).append(claim)
    for where, lines in by_place.items():
        yield _lines(where + how, CLAIMS, claim_rows(lines))


def _checks(results: Iterable[Document]) -> Iterator[str]:
    titles = {e.name: e.title for e in load().values()}
    for doc in results:
        title = titles.get(doc.name, doc.name)
        yield _lines(title, CHECKS, check_rows(doc.checks), f"How obtained: {doc.how}.")


def _lines(title: str, columns: Sequence[str], rows: Rows, note: str = "") -> str:
    """Claims or checks; on a phone each is a block of its own."""
    rows = list(rows)
    if not rows:
        return ""
    standings = [row[columns.index("verdict")] for row in rows]
    counted = ", ".join(f"{standings.count(s)} {s}" for s in dict.fromkeys(standings))
    head = "".join(f"<th scope='col'>{escape(column)}</th>" for column in columns)
    body = "\n".join(f"<tr>{''.join(map(_cell_of, columns, row))}</tr>" for row in rows)
    return _folded(
        f"{escape(title)} <small>{escape(counted)}</small>",
        (f"<p>{escape(note)}</p>" if note else "")
        + f"<table class='claims'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        opened=len(rows) <= LONG,
    )


def _cell_of(column: str, cell: str) -> str:
    shown = _standing(cell) if column == "verdict" else escape(cell)
    return f"<td data-column='{escape(column)}'>{shown}</td>"


# Tables, figures ---------------------------------------------------------------------------------


def _cell(cell: Any) -> str:
    if cell is None:
        return ""
    return ", ".join(map(str, cell)) if isinstance(cell, list | tuple) else str(cell)


def _folded(title: str, body: str, *, opened: bool) -> str:
    return f"<details{' open' if opened else ''}><summary>{title}</summary>{body}</details>"


def _table(table: Table) -> str:
    title, note = escape(table.title), f"<p>{escape(table.note)}</p>" if table.note else ""
    return _folded(
        f"{title} <small>{len(table.rows)} rows</small>",
        _wide(title, _grid(table.columns, (map(_plain, row) for row in table.rows))) + note,
        opened=len(table.rows) <= LONG,
    )


def _plain(cell: Any) -> str:
    return f"<td{' class=n' if isinstance(cell, int | float) else ''}>{escape(_cell(cell))}</td>"


def _grid(columns: Iterable[Any], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th scope='col'>{escape(str(c))}</th>" if c else "<td></td>" for c in columns)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _wide(label: str, table: str) -> str:
    """What may be wider than the page scrolls by itself, by keyboard as well."""
    return f"<div class='wide' tabindex='0' role='region' aria-label='{label}'>{table}</div>"


def _figure(figure: Figure) -> str:
    title = escape(figure.title)
    # As an image, a picture's scripts and names stay its own.
    source = f"data:image/svg+xml,{quote(figure.svg)}"
    return f"<figure><img alt='{title}' src='{source}'><figcaption>{title}</figcaption></figure>"


# Explorer ----------------------------------------------------------------------------------------


def _link(case: int, plan: str, text: str) -> str:
    return f"<a href='#case={case}&amp;plan={quote(plan)}'>{text}</a>"


def _judged(run: Run) -> str:
    if run.verdict is Verdict.LEGAL:
        return "✓ legal"
    return "✗ " + escape(", ".join(dict.fromkeys(v.rule for v in run.violations)))


def _targeted(cases: Sequence[Case]) -> Iterator[str]:
    """The eight mutations on the cases that they are stated on, each a way into the explorer."""
    found = {m.id: (i, m) for i, case in enumerate(cases) for m in case.mutants}
    for name, example in PAPER_EIGHT.items():
        if example in found:
            i, mutant = found[example]
            link = _link(i, mutant.key, escape(name))
            yield (
                f"<tr><td>{link}</td><td>{escape(cases[i].name)}</td>"
                f"<td>{_judged(mutant.run)}</td></tr>"
            )


def _verdicts(cases: Sequence[Case]) -> str:
    names = list(dict.fromkeys(name for case in cases for name in case.runs))

    def cells(i: int, case: Case) -> Iterator[str]:
        yield f"<th scope='row'>{escape(case.name)}</th>"
        for name in names:
            run = case.runs.get(name)
            yield f"<td>{_link(i, name, _judged(run)) if run else ''}</td>"

    rows = (cells(i, case) for i, case in enumerate(cases))
    return _wide("Verdicts of the checker", _grid(("case", *names), rows))


def _provenance(results: Iterable[Document]) -> str:
    rows = [
        (f"<th scope='row'>{escape(doc.name)}</th>", _plain(_flat(doc.volatile.provenance)))
        for doc in results
    ]
    grid = _grid(("result", "code, versions, machine, time"), rows)
    return _folded("Where the results come from", grid, opened=False) if rows else ""


def _flat(value: Any) -> str:
    fields = msgspec.to_builtins(value)
    return "; ".join(
        f"{k} {_flat(v) if isinstance(v, dict) else _cell(v)}" for k, v in fields.items()
    )
