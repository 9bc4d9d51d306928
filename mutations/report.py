"""What a campaign found, as tables, files, pictures and one self-contained page.

Everything here is a function of the records, so equal campaigns give equal bytes.
"""

from __future__ import annotations

import csv
import difflib
import html
import io as text_io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from mutations.campaign import (
    KILLS,
    Class,
    Judged,
    Mutant,
    Record,
    mutant_of,
    subject_named_in,
)
from mutations.checkers import REDUNDANT, WEAKENINGS, smallest_cover
from mutations.operators import OPERATORS
from mutations.subjects import Subject
from mutations.truth import NO_REFERENCE
from sembridge import io
from sembridge.obligations import CONTRACT_RULES
from sembridge.plan import Plan
from sembridge.rules import RULES

SHOW_ALL = 2000
SHOW_SOME = 3
"""The page has every mutant's diff up to ``SHOW_ALL`` of them, else the first ``SHOW_SOME`` of
each operator and class, and every survivor's."""

SURVIVORS = (Class.MISSED, Class.OVERSTRICT, Class.UNKNOWN, Class.ERROR)

JUDGES: dict[str, Callable[[Record], bool]] = {
    "checker": lambda r: bool(r.rules),
    "execution": lambda r: r.execution in ("differs", "fault"),
    "identity": lambda r: "identity" in r.wrong,
    "delivery": lambda r: "redelivery" in r.wrong,
    "no reference": lambda r: NO_REFERENCE in r.wrong,
    "proof": lambda r: r.proof == "illegal",
}
"""Who refuses a mutant."""


class Summary(Struct, frozen=True, kw_only=True):
    """Counts of one campaign; ``score`` is kills in percent of kills and misses."""

    subjects: int
    mutants: int
    classes: dict[str, int]
    score: float
    unexplained: int
    insane: tuple[str, ...]
    disagreements: int
    planted: dict[str, bool]

    @property
    def sound(self) -> bool:
        """Nothing missed or left unjudged, no rejection without a reason, every judge sane."""
        return not (
            self.classes[Class.MISSED]
            or self.classes[Class.ERROR]
            or self.classes[Class.UNKNOWN]
            or self.unexplained
            or self.insane
            or self.disagreements
        ) and all(self.planted.values())


def records_of(judged: Iterable[Judged]) -> list[Record]:
    """All records, in campaign order."""
    return [record for one in judged for record in one.records]


def summarize(judged: Sequence[Judged]) -> Summary:
    """Count classes, and whether the sanity phase holds.

    ``planted`` says of the judges that are wrong on purpose whether this campaign notices them:
    one that accepts all misses some mutant, one that rejects all refuses an unmutated plan.
    ``disagreements`` counts mutants that execution refutes and the proof calls legal.
    """
    records = records_of(judged)
    counts = Counter(r.outcome for r in records)
    kills, missed = sum(counts[c] for c in KILLS), counts[Class.MISSED]
    return Summary(
        subjects=len(judged),
        mutants=len(records),
        classes={str(c): counts[c] for c in Class},
        score=round(100 * kills / (kills + missed), 2) if kills + missed else 100.0,
        unexplained=sum(r.unexplained for r in records),
        insane=tuple(f"{j.subject}: {', '.join(j.insane)}" for j in judged if j.insane),
        disagreements=sum(r.proof == "legal" and bool(r.wrong) for r in records),
        planted={
            "a judge that accepts all": kills + missed > 0,
            "a judge that rejects all": any(not j.insane for j in judged),
        },
    )


Rows = list[tuple[Any, ...]]


def by_operator(records: Sequence[Record]) -> Rows:
    """(operator, on, what it does, mutants, then a count for each class)."""
    counts = Counter((r.operators, r.outcome) for r in records)
    rows: Rows = []
    for operators in sorted({r.operators for r in records}, key=_registry_order):
        cells = [counts[operators, c] for c in Class]
        one = OPERATORS[operators[0]]
        on, says = (one.on, one.says) if len(operators) == 1 else ("both", "")
        rows.append((" + ".join(operators), on, says, sum(cells), *cells))
    return rows


def _registry_order(operators: tuple[str, ...]) -> tuple[int, ...]:
    names = list(OPERATORS)
    return tuple(names.index(name) for name in operators)


class Matrix(Struct, frozen=True, kw_only=True):
    """Counts with row and column names."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]


def rule_matrix(records: Sequence[Record]) -> Matrix:
    """Operator × rule: how many of an operator's mutants each rule refuses."""
    columns = [*dict.fromkeys(r.name for r in RULES), *dict.fromkeys(n for n, _ in CONTRACT_RULES)]
    return _matrix("Mutants that each rule refuses", records, {n: _broke(n) for n in columns})


def _broke(name: str) -> Callable[[Record], bool]:
    return lambda record: name in record.rules


def judge_matrix(records: Sequence[Record]) -> Matrix:
    """Operator × judge: how many of an operator's mutants each judge refuses."""
    return _matrix("Mutants that each judge refuses", records, JUDGES)


def _matrix(
    title: str, records: Sequence[Record], columns: dict[str, Callable[[Record], bool]]
) -> Matrix:
    used = {name for r in records for name in r.operators}
    rows = tuple(name for name in OPERATORS if name in used)
    counts: Counter[tuple[str, str]] = Counter()
    for r in records:
        for column, refuses in columns.items():
            if refuses(r):
                counts.update((name, column) for name in r.operators)
    cells = tuple(tuple(counts[row, column] for column in columns) for row in rows)
    return Matrix(title=title, rows=rows, columns=tuple(columns), cells=cells)


class Noticed(Struct, frozen=True, kw_only=True):
    """How a campaign notices one weakened checker.

    ``missed`` mutants are wrong and accepted by it, ``stated`` ones are right in every observation
    and forbidden by a stated condition; ``standing`` says what that amounts to.
    """

    checker: str
    says: str
    missed: int
    stated: int
    example: str
    standing: str


def checkers_noticed(records: Sequence[Record]) -> list[Noticed]:
    """Every rule dropped and every condition weakened, and which mutants tell."""
    found = [
        _noticed(rule.id, "the rule is dropped", [r for r in records if r.broken == (rule.id,)])
        for rule in RULES
    ]
    accepted: dict[str, list[Record]] = {name: [] for name in WEAKENINGS}
    for r in records:
        for name in r.accepted_by:
            accepted[name].append(r)
    return found + [
        _noticed(name, weakening.says, accepted[name]) for name, weakening in WEAKENINGS.items()
    ]


def _noticed(checker: str, says: str, accepted: list[Record]) -> Noticed:
    missed = [r for r in accepted if r.wrong]
    stated = [r for r in accepted if not r.wrong]
    standing = "untested"
    if missed:
        standing = "noticed"
    elif stated:
        standing = "noticed by a stated condition"
    elif checker in REDUNDANT:
        standing = "redundant"
    return Noticed(
        checker=checker,
        says=says,
        missed=len(missed),
        stated=len(stated),
        example=(missed or stated)[0].id if accepted else REDUNDANT.get(checker, ""),
        standing=standing,
    )


def necessary_rules(records: Sequence[Record]) -> tuple[str, ...]:
    """The smallest set of rules that still kills every mutant that is killed."""
    return smallest_cover([frozenset(r.broken) for r in records if r.outcome in KILLS])


# Files ------------------------------------------------------------------------------------------


def jsonl(records: Iterable[Record]) -> bytes:
    """One record a line."""
    return b"".join(msgspec.json.encode(r) + b"\n" for r in records)


def as_csv(records: Iterable[Record]) -> bytes:
    """Records as comma-separated values; lists are joined by spaces or semicolons."""
    out = text_io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Record.__struct_fields__)
    for r in records:
        writer.writerow(_cell(getattr(r, name)) for name in Record.__struct_fields__)
    return out.getvalue().encode()


def _cell(value: str | tuple[str, ...]) -> str:
    return "; ".join(value) if isinstance(value, tuple) else str(value)


def svg(matrix: Matrix) -> bytes:
    """A matrix as a picture: darker where more, the counts written in."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.hashsalt": "sembridge",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 8,
    }
    drawn = [i for i, row in enumerate(matrix.cells) if any(row)]
    names, cells = [matrix.rows[i] for i in drawn], [matrix.cells[i] for i in drawn]
    height, width = max(len(names), 1), len(matrix.columns)
    with mpl.rc_context(settings):
        # Margins by hand: solving for them takes seconds on a hundred rows.
        inner = 0.5 * width, 0.2 * height
        outer = inner[0] + 3.4, inner[1] + 1.8
        figure = Figure(figsize=outer)
        place = (2.2 / outer[0], 0.2 / outer[1], inner[0] / outer[0], inner[1] / outer[1])
        axes: Any = figure.add_axes(place)
        most = max((n for row in cells for n in row), default=1) or 1
        shades = [[(n / most) ** 0.3 if n else 0.0 for n in row] for row in cells] or [
            [0.0] * width
        ]
        axes.pcolormesh(shades, cmap="Blues", vmin=0, vmax=1.6, edgecolors="white", linewidth=0.6)
        for y, row in enumerate(cells):
            for x, n in enumerate(row):
                if n:
                    axes.text(x + 0.5, y + 0.5, str(n), ha="center", va="center", fontsize=6)
        axes.set_xticks([x + 0.5 for x in range(width)], matrix.columns, rotation=45, ha="left")
        axes.set_yticks([y + 0.5 for y in range(len(names))], names)
        axes.xaxis.tick_top()
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.set_title(matrix.title, fontsize=10, pad=12)
        out = text_io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def diff(subject: Subject, mutant: Mutant) -> str:
    """What a mutant changes in contract and plan, as a unified diff."""
    lines = [
        *_diff("contract", io.encode(subject.contract), io.encode(mutant.contract)),
        *_diff("plan", _plan_lines(subject.plan), _plan_lines(mutant.plan)),
    ]
    return "\n".join(lines)


def _plan_lines(plan: Plan) -> bytes:
    head = msgspec.json.encode({"contract": plan.contract, "tag": plan.tag})
    return b"\n".join([head, *map(msgspec.json.encode, plan.ops)])


def _diff(name: str, before: bytes, after: bytes) -> list[str]:
    old, new = before.decode().splitlines(), after.decode().splitlines()
    return [*difflib.unified_diff(old, new, f"{name}", f"mutated {name}", lineterm="", n=1)]


STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.15rem .6rem;text-align:left;
border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right}
pre{background:#f6f6f6;padding:.6rem;overflow:auto;font-size:12px}summary{cursor:pointer}
svg{max-width:100%;height:auto}.bad{color:#a00;font-weight:600}
"""


def page(judged: Sequence[Judged], subjects: Sequence[Subject], title: str) -> bytes:
    """One self-contained HTML page: survivors first, then checkers, operators, every mutant."""
    records, summary = records_of(judged), summarize(judged)
    known = {s.name: s for s in subjects}
    survivors = [r for r in records if r.outcome in SURVIVORS]
    alarming = [r for r in survivors if r.outcome is not Class.OVERSTRICT or r.unexplained]
    explained = [r for r in survivors if r.outcome is Class.OVERSTRICT and r.why]
    counts = [(name, n) for name, n in summary.classes.items() if n]
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>",
        f"<p>{summary.mutants} mutants of {summary.subjects} subjects; "
        f"score {summary.score} %.</p>",
        _table(("class", "mutants"), counts),
        "<h2>Survivors</h2>",
        "".join(_details(r, known) for r in alarming) or "<p>None: nothing wrong was accepted.</p>",
        "<h2>Rejected though every observation is right</h2>",
        _table(("mutants", "stated condition"), _explanations(explained)),
        "".join(_details(r, known) for r in _some(explained, len(records))),
        "<h2>Weakened checkers</h2>",
        _table(
            ("checker", "what is weakened", "missed", "stated", "standing", "example or proof"),
            [
                (n.checker, n.says, n.missed, n.stated, n.standing, n.example)
                for n in checkers_noticed(records)
            ],
        ),
        "<h2>Smallest set of rules that kills everything</h2>",
        _table(("rule",), [(rule,) for rule in necessary_rules(records)]),
        "<h2>Operators</h2>",
        _table(("operator", "on", "what it does", "mutants", *Class), by_operator(records)),
        *(_inline(svg(m)) for m in (rule_matrix(records), judge_matrix(records))),
        "<h2>Mutants</h2>",
        "".join(_details(r, known) for r in _some(records, len(records))),
    ]
    return "\n".join(parts).encode()


def _some(records: Sequence[Record], total: int) -> list[Record]:
    if total <= SHOW_ALL:
        return list(records)
    shown: Counter[tuple[Any, ...]] = Counter()
    some: list[Record] = []
    for r in records:
        shown[r.operators, r.outcome] += 1
        if shown[r.operators, r.outcome] <= SHOW_SOME:
            some.append(r)
    return some


def _explanations(records: Iterable[Record]) -> Rows:
    return [(n, why) for why, n in sorted(Counter(r.why for r in records).items())]


def _details(record: Record, known: dict[str, Subject]) -> str:
    subject = known[subject_named_in(record.id)]
    mutant = mutant_of(record.id, subject)
    facts = [
        f"class: {record.outcome}" + (f" ({record.why})" if record.why else ""),
        f"checker: {', '.join(record.rules) or 'legal'}",
        f"execution: {record.execution}; proof: {record.proof}",
        f"wrong: {', '.join(record.wrong) or 'nothing'}",
        f"replay: {subject.replay(record.id)}",
        "",
        diff(subject, mutant),
    ]
    text = html.escape("\n".join(facts))
    label = f"{html.escape(record.id)}: {record.outcome}"
    return f"<details><summary>{label}</summary><pre>{text}</pre></details>\n"


def _table(columns: Iterable[Any], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(str(c))}</th>" for c in columns)
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if isinstance(cell, int) else ''}>{html.escape(str(cell))}</td>"
            for cell in row
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _inline(picture: bytes) -> str:
    text = picture.decode()
    return text[text.index("<svg") :]
