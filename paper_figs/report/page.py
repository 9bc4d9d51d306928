"""The report as one HTML page that needs no network: text first, then a script that explores.

Names come from files and may be hostile: what is written here is escaped, the script shows text
as text, and the page's own policy lets no other script, style or address be used.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from experiments.matrix import PLANNERS
from experiments.real_edges import contracts
from experiments.registry import REPORTED, Claim, Standing, Table, load
from mutations.operators import PAPER_EIGHT
from paper_figs.report.explorer import Case, Run
from sembridge import io
from sembridge.draw import draw_svg
from sembridge.errors import BadInput
from sembridge.verdict import Verdict

MAX_FIGURE = 2**20
"""Most bytes of a figure that the page takes in."""

LONG = 16
"""A table with more rows than this is folded."""

FORMAT = "sembridge.result/1"

MARKS = {Standing.HOLDS: "✓", Standing.DIFFERS: "✗", Standing.NOT_VALIDATED: "–"}

PICTURED = (("minimax-m2.7.result", "layout-only"), ("minimax-m2.7.result", "semantic"))
"""Edges and planners whose plans are drawn beside the results' figures."""


class Found(Struct, frozen=True, kw_only=True):
    """A result file, as :func:`paper_figs.tables.write_result` writes it."""

    name: str
    how: str
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    volatile: dict[str, Any] = {}


class Figure(Struct, frozen=True, kw_only=True):
    """An SVG picture and what it shows."""

    title: str
    svg: bytes


class _Head(Struct):
    format: str = ""


def read_results(folder: Path) -> list[Found]:
    """The results of a folder, those that quote most of the paper's numbers first.

    Raises:
        BadInput: a file that says it is a result is none.
    """
    found: list[Found] = []
    for path in sorted(folder.rglob("*.json")):
        data = io.read_bytes(path)
        try:
            if msgspec.json.decode(data, type=_Head).format != FORMAT:
                continue
            found.append(msgspec.json.decode(data, type=Found))
        except msgspec.DecodeError as error:
            raise BadInput(f"no result: {error}", file=str(path)) from None
    return sorted(found, key=lambda r: (-sum(c.paper is not None for c in r.claims), r.name))


def read_figures(folder: Path) -> list[Figure]:
    """Plans of a real edge, drawn here, and every SVG picture of a results folder."""
    edges = contracts()
    drawn = [
        Figure(title=f"{edge}: the {planner} plan", svg=draw_svg(edges[edge], plan))
        for edge, planner in PICTURED
        for plan in [PLANNERS[planner](edges[edge])]
    ]
    for path in sorted(folder.rglob("*.svg")):
        svg = io.read_bytes(path)
        if len(svg) <= MAX_FIGURE:
            drawn.append(Figure(title=str(path.relative_to(folder).with_suffix("")), svg=svg))
    return drawn


def page(results: Sequence[Found], figures: Sequence[Figure], cases: Sequence[Case]) -> bytes:
    """The page; equal input gives equal bytes, and what varies between runs is in its footer."""
    style, script = _part("style.css"), _part("explorer.js")
    policy = (
        f"default-src 'none'; img-src data:; script-src {_hash(script)}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    return (
        Template(_part("page.html"))
        .substitute(
            policy=escape(policy),
            style=style,
            script=script,
            summary=_summary(results),
            claims="\n".join(_claims(results)),
            tables="\n".join(_table(t) for r in results for t in r.tables) or _none("results"),
            figures="\n".join(map(_figure, figures)),
            targeted="\n".join(_targeted(cases)),
            verdicts=_verdicts(cases),
            data=_data(cases),
            volatile=_volatile(results),
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


def _summary(results: Sequence[Found]) -> str:
    counted = {s: sum(c.standing is s for r in results for c in r.claims) for s in Standing}
    return "".join(
        f"<li class='{_slug(s)}'><strong>{n}</strong> {MARKS[s]} {escape(str(s))}</li>"
        for s, n in counted.items()
    )


def _slug(standing: Standing) -> str:
    return str(standing).replace(" ", "-")


def _claims(results: Sequence[Found]) -> Iterator[str]:
    titles = {e.name: e.title for e in load().values()}
    columns = ("claim", "place", REPORTED, "ours", "standing", "note")
    head = "".join(f"<th scope='col'>{escape(column)}</th>" for column in columns)
    for r in results:
        rows = "\n".join(
            "<tr>" + "".join(map(_claimed, columns, _claim(claim))) + "</tr>" for claim in r.claims
        )
        counts = Counter(str(claim.standing) for claim in r.claims)
        counted = ", ".join(f"{n} {standing}" for standing, n in counts.items())
        yield _folded(
            f"{escape(titles.get(r.name, r.name))} <small>{escape(counted)}</small>",
            f"<p>How obtained: {escape(r.how)}.</p><table class='claims'><thead><tr>{head}</tr>"
            f"</thead><tbody>{rows}</tbody></table>",
            opened=len(r.claims) <= LONG,
        )
    missing = [title for name, title in titles.items() if name not in {r.name for r in results}]
    if missing:
        listed = "".join(f"<li>{escape(title)}</li>" for title in missing)
        yield f"<h3>Not run</h3><ul>{listed}</ul>"


def _claim(claim: Claim) -> tuple[str, ...]:
    """The cells of a claim, escaped."""
    standing = f"{MARKS[claim.standing]} {escape(str(claim.standing))}"
    return (
        escape(claim.name),
        escape(claim.where),
        escape(_cell(claim.paper)),
        escape(_cell(claim.ours)),
        f"<span class='{_slug(claim.standing)}'>{standing}</span>",
        escape(claim.note),
    )


def _claimed(column: str, cell: str) -> str:
    return f"<td data-column='{escape(column)}'>{cell}</td>"


def _cell(cell: Any) -> str:
    if cell is None:
        return ""
    return ", ".join(map(str, cell)) if isinstance(cell, list | tuple) else str(cell)


def _folded(title: str, body: str, *, opened: bool) -> str:
    return f"<details{' open' if opened else ''}><summary>{title}</summary>{body}</details>"


def _table(table: Table) -> str:
    head = "".join(f"<th scope='col'>{escape(str(c))}</th>" for c in table.columns)
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if isinstance(cell, int | float) else ''}>{escape(_cell(cell))}</td>"
            for cell in row
        )
        + "</tr>"
        for row in table.rows
    )
    title, note = escape(table.title), f"<p>{escape(table.note)}</p>" if table.note else ""
    return _folded(
        f"{title} <small>{len(table.rows)} rows</small>",
        _wide(title, f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>") + note,
        opened=len(table.rows) <= LONG,
    )


def _wide(label: str, table: str) -> str:
    """What may be wider than the page scrolls by itself, by keyboard as well."""
    return f"<div class='wide' tabindex='0' role='region' aria-label='{label}'>{table}</div>"


def _figure(figure: Figure) -> str:
    title = escape(figure.title)
    # As an image a picture's scripts and names stay its own.
    source = f"data:image/svg+xml,{quote(figure.svg)}"
    return f"<figure><img alt='{title}' src='{source}'><figcaption>{title}</figcaption></figure>"


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
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in ("case", *names))
    rows = "\n".join(
        f"<tr><th scope='row'>{escape(case.name)}</th>"
        + "".join(
            f"<td>{_link(i, name, _judged(case.runs[name])) if name in case.runs else ''}</td>"
            for name in names
        )
        + "</tr>"
        for i, case in enumerate(cases)
    )
    return _wide(
        "Verdicts of the checker",
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>",
    )


def _volatile(results: Iterable[Found]) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{escape(r.name)}</th><td>{escape(_flat(r.volatile))}</td></tr>"
        for r in results
    )
    return _folded("How the results were obtained", f"<table>{rows}</table>", opened=False)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k} {_flat(v)}" for k, v in value.items())
    return _cell(value)
