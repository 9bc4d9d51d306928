"""Tables as Markdown and LaTeX: nothing in a cell is read as markup."""

from __future__ import annotations

import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from experiments.ledger import Estimate, Standing, ledger, shown
from experiments.registry import Table
from paper_figs.tables import all_claims, latex, markdown

cells = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=20)


def table(*row: str) -> Table:
    return Table(title="t", columns=tuple("c" for _ in row), rows=(row,))


@given(cells, cells)
def test_cells_cannot_end_a_cell_of_markdown(one, other):
    row = markdown("how", [table(one, other)]).splitlines()[-1]
    assert len(re.findall(r"(?<!\\)\|", row.replace("\\\\", ""))) == 3 or "\\" in one + other
    assert row.startswith("| ") and row.endswith(" |")


@given(cells)
def test_cells_are_text_to_latex(cell):
    body = latex([table(cell)]).splitlines()[6].removesuffix(r" \\")
    plain = re.sub(r"\\text\w+\{\}|\\dots\{\}|\$\\?[\w-]+\$|\\[&%$#_{}]", "", body)
    assert not set(plain) & set("&%$#_{}\\^~")
    assert not set(plain) & set("→↓≤×·−⇒αβ…")


def test_an_estimate_shows_its_interval():
    estimate = Estimate(mean=80.2, ci95=(77.12, 83.28))
    assert shown(estimate) == "80.2 [77.12, 83.28]"
    assert shown(msgspec.json.decode(msgspec.json.encode(estimate))) == shown(estimate)
    assert [shown(v) for v in (None, 3, (2, 4), 156.3e6)] == ["", "3", "2, 4", "1.563e+08"]


def test_the_whole_ledger_is_there_whatever_was_run(tmp_path):
    lines = all_claims(tmp_path)
    assert [one.name for one in lines] == list(ledger())
    assert {one.standing for one in lines} == {Standing.NOT_RUN, Standing.NOT_VALIDATED}
