"""The ledger holds every number of the paper once, and compares by class in one place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.ledger import (
    Claim,
    Class,
    Estimate,
    Standing,
    compare,
    ledger,
    paper,
    read_claims,
)
from experiments.registry import load
from experiments.wire_totals import CELLS
from sembridge.errors import BadInput

GROUP = """
format = "sembridge.claims/1"
source = "a paper"
[[group]]
experiment = "table2"
where = "§1"
class = "exact"
how = "counted"
"""


def numbers(value: Any, at: str = "") -> dict[str, float]:
    """Every number below a JSON value, by its path."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    elif isinstance(value, int | float):
        return {at: value}
    else:
        return {}
    below = [numbers(v, f"{at}.{k}".lstrip(".")) for k, v in parts]
    return {path: n for found in below for path, n in found.items()}


@pytest.fixture(scope="module")
def facts(request):
    path = request.config.rootpath / "tests" / "data" / "facts.json"
    return numbers(json.loads(path.read_text(encoding="utf-8")))


def told_by(claim: Claim, facts: dict[str, float]) -> dict[str, float]:
    """The facts that a claim names: those at its paths and below."""
    return {
        path: n
        for path, n in facts.items()
        if any(path == f or path.startswith(f"{f}.") for f in claim.facts)
    }


def test_every_number_of_the_paper_is_named_by_a_claim(facts):
    named = {path for claim in ledger().values() for path in told_by(claim, facts)}
    assert facts.keys() - named == set()


def test_claims_say_what_the_facts_say(facts):
    for claim in ledger().values():
        told = list(told_by(claim, facts).values())
        if told:
            reported = claim.paper if isinstance(claim.paper, tuple) else (claim.paper,)
            assert [*reported, *(claim.ci95 or ())] == told, claim.name


def test_explicit_fact_paths_exist(facts):
    for claim in ledger().values():
        if claim.facts != (claim.name,):
            for path in claim.facts:
                assert any(f == path or f.startswith(f"{path}.") for f in facts), claim.name


def test_every_command_exists():
    assert {claim.experiment for claim in ledger().values()} <= load().keys()


def test_no_paper_number_stands_in_two_places():
    said: dict[tuple[str, str], str] = {}
    for claim in ledger().values():
        key = (claim.experiment, claim.says)
        assert said.setdefault(key, claim.name) == claim.name


def claim(class_: Class, paper: Any, **fields: Any) -> Claim:
    given = {"within": None, "ci95": None, "why": ""} | fields
    return Claim(
        name="n", says="s", where="w", paper=paper, class_=class_, how="h", experiment="e",
        facts=("n",), **given,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("class_", "paper", "holds", "differs"),
    [
        (Class.EXACT, 3, [3], [4, 2.9]),
        (Class.EXACT, (2, 4), [(2, 4), [2, 4]], [(4, 2), [2]]),
        (Class.AT_MOST, 0.13, [0.13, 0.01], [0.131, float("nan")]),
        (Class.AT_MOST, (0.1, 0.2), [0.2, 0.05], [0.21]),
        (Class.AT_LEAST, 99.97, [99.97, 99.98], [99.96]),
        (Class.ORDER, 8.9, [0.1, 80.0], [-0.1, -80.0]),
        (Class.ORDER, -84.9, [-1.0], [1.0]),
    ],
)
def test_classes(class_, paper, holds, differs):
    for ours in holds:
        assert compare(claim(class_, paper), ours) is Standing.HOLDS, ours
    for ours in differs:
        assert compare(claim(class_, paper), ours) is Standing.DIFFERS, ours
    assert compare(claim(class_, paper), None) is Standing.NOT_RUN


def test_within_a_share_of_a_number_and_of_a_range():
    number, interval = claim(Class.WITHIN, 100, within=5), claim(Class.WITHIN, (50, 60), within=10)
    assert [compare(number, n) for n in (94.9, 95, 105, 105.1)] == [
        Standing.DIFFERS, Standing.HOLDS, Standing.HOLDS, Standing.DIFFERS
    ]  # fmt: skip
    assert [compare(interval, n) for n in (44, 45, 55, 66, 67)] == [
        Standing.DIFFERS, Standing.HOLDS, Standing.HOLDS, Standing.HOLDS, Standing.DIFFERS
    ]  # fmt: skip


@given(low=st.floats(-50, 50), size=st.floats(0, 50), paper=st.sampled_from([-7.0, 7.0]))
def test_an_interval_holds_only_wholly_on_the_papers_side(low, size, paper):
    ours = Estimate(mean=low + size / 2, ci95=(low, low + size))
    standing = compare(claim(Class.ORDER, paper), ours)
    across = low <= 0 <= low + size
    assert (standing is Standing.UNDECIDED) == across
    if not across:
        assert (standing is Standing.HOLDS) == ((low > 0) == (paper > 0))


@given(ours=st.none() | st.integers() | st.floats())
def test_what_is_not_validated_never_passes(ours):
    assert compare(claim(Class.NOT_VALIDATED, 504, why="w"), ours) is Standing.NOT_VALIDATED


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{ name = "a", says = "s", paper = 1, wher = "x" }', "unknown field `wher`"),
        ('{ name = "a", says = "s" }', "missing required field `paper`"),
        ('{ name = "a", says = "s", paper = "1" }', "$.group[0].claims[0].paper"),
        ('{ name = "a", says = "s", paper = 1, class = "close" }', "Invalid enum value"),
        ('{ name = "a", says = "s", paper = 1, class = "within" }', "within what?"),
        ('{ name = "a", says = "s", paper = 1, class = "not-validated" }', "a reason stands"),
        ('{ name = "a", says = "s", paper = 1, why = "x" }', "a reason stands"),
        ('{ name = "a", says = "s", paper = 0, class = "order" }', "side of zero"),
        ('{ name = "a", says = "s", paper = 1 }, { name = "a", says = "t", paper = 2 }', "twice"),
        ("{ name = ", "Invalid value"),
    ],
)
def test_a_broken_ledger_is_refused(entry, message):
    with pytest.raises(BadInput, match=r"claims\.toml") as raised:
        read_claims(GROUP + f"claims = [{entry}]\n")
    assert message in str(raised.value)


def test_a_claim_takes_from_its_group_what_it_does_not_say():
    text = GROUP + 'claims = [{ name = "a.b", says = "s", paper = 1 }]\n'
    only = read_claims(text)["a.b"]
    assert (only.where, only.class_, only.how, only.facts) == (
        "§1",
        Class.EXACT,
        "counted",
        ("a.b",),
    )
    assert only.command == "sembridge reproduce table2"


def framed(rows, steps, lanes, columns, bytes_each):
    """Figure 3's two totals by the frame sizes alone, without any plan."""
    frames = lanes * steps
    return rows * columns * bytes_each + 130 * frames, 48 * frames + 4 * lanes * rows


@pytest.mark.parametrize(
    ("cell", "steps", "lanes", "columns", "fits"),
    [("dense_tp4", 130, 4, 151936, {514}), ("moe_tp2", 332, 2, 248320, {2571, 2572})],
)
def test_which_rows_meet_both_totals_of_a_cell(cell, steps, lanes, columns, fits):
    at = f"figure3.result_traffic_bytes.{cell}"
    wanted = [f"{paper(f'{at}.R0'):.3e}", f"{paper(f'{at}.P0'):.2e}"]
    found = {
        (rows, size)
        for rows in range(100, 4000)
        for size in (2, 4)
        for full, projected in [framed(rows, steps, lanes, columns, size)]
        if [f"{full:.3e}", f"{projected:.2e}"] == wanted
    }
    assert found == {(rows, 2) for rows in fits}
    assert CELLS[cell][3] in fits
