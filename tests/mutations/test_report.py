"""Reports are functions of the records: counts, files, pictures, the page."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest

from mutations.campaign import Class, Judged, Options, Record, mutants_of, run
from mutations.report import (
    as_csv,
    by_operator,
    checkers_noticed,
    diff,
    jsonl,
    judge_matrix,
    page,
    records_of,
    rule_matrix,
    summarize,
    svg,
)
from tests.mutations.samples import some_subjects


@pytest.fixture(scope="module")
def judged():
    return run(some_subjects()[:3], Options(limit=40), engine="serial")


def replaced(judged, **fields):
    """The first record changed."""
    first, *rest = judged
    record = msgspec.structs.replace(first.records[0], **fields)
    return [msgspec.structs.replace(first, records=(record, *first.records[1:])), *rest]


def test_counts_add_up(judged):
    records = records_of(judged)
    summary = summarize(judged)
    assert summary.mutants == len(records) == sum(summary.classes.values())
    rows = by_operator(records)
    assert sum(row[3] for row in rows) == len(records)
    for i, name in enumerate(Class):
        assert sum(row[4 + i] for row in rows) == summary.classes[name]
    matrix = rule_matrix(records)
    for j, rule in enumerate(matrix.columns):
        assert sum(row[j] for row in matrix.cells) == sum(rule in r.rules for r in records)
    judges = judge_matrix(records)
    checker = judges.columns.index("checker")
    assert sum(row[checker] for row in judges.cells) == sum(bool(r.rules) for r in records)


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": Class.MISSED, "wrong": ("differs",)},
        {"outcome": Class.ERROR},
        {"outcome": Class.OVERSTRICT, "why": ""},
        {"wrong": ("differs",), "proof": "legal"},
    ],
)
def test_one_bad_record_makes_a_campaign_unsound(judged, fields):
    assert summarize(judged).sound
    assert not summarize(replaced(judged, **fields)).sound


def test_an_explained_rejection_does_not(judged):
    explained = replaced(judged, outcome=Class.OVERSTRICT, why="a stated condition")
    assert summarize(explained).sound


def test_insane_judges_are_named(judged):
    insane = [msgspec.structs.replace(judged[0], insane=("checker",)), *judged[1:]]
    assert summarize(insane).insane == (f"{judged[0].subject}: checker",)
    assert not summarize(insane).sound


def test_files_hold_every_record(judged):
    records = records_of(judged)
    lines = jsonl(records).splitlines()
    assert [msgspec.json.decode(line, type=Record) for line in lines] == records
    rows = list(csv.DictReader(io.StringIO(as_csv(records).decode())))
    assert [row["id"] for row in rows] == [r.id for r in records]
    assert [row["outcome"] for row in rows] == [str(r.outcome) for r in records]


def test_equal_records_give_equal_bytes(judged):
    records = records_of(judged)
    again = [msgspec.json.decode(msgspec.json.encode(j), type=Judged) for j in judged]
    assert svg(rule_matrix(records)) == svg(rule_matrix(records_of(again)))
    assert page(judged, some_subjects(), "t") == page(again, some_subjects(), "t")


def test_the_page_shows_survivors_first_and_stands_alone(judged):
    record = judged[0].records[0]
    bad = replaced(judged, outcome=Class.MISSED, wrong=("differs",), why="accepted, and wrong")
    text = page(bad, some_subjects(), "A <campaign>").decode()
    assert text.index(f"{record.id}: missed") < text.index("<h2>Weakened checkers")
    assert "A &lt;campaign&gt;" in text
    assert text.count("<svg") == 2
    assert "src=" not in text.replace("src&", "") or "<img" not in text
    assert "None: nothing wrong was accepted" in page(judged, some_subjects(), "t").decode()


def test_a_diff_shows_what_changed_and_nothing_else():
    subject = some_subjects()[0]
    for mutant in mutants_of(subject, ["drop-delivery", "rename-contract"]):
        lines = diff(subject, mutant).splitlines()
        changed = [x for x in lines if x[:1] in "+-" and not x.startswith(("+++", "---"))]
        if mutant.operators == ("drop-delivery",):
            assert [x[0] for x in changed] == ["-"]
            assert lines[0] == "--- plan"
        else:
            assert [x[0] for x in changed] == ["-", "+"]
            assert lines[0] == "--- contract"


def test_an_untested_checker_mutant_is_called_so():
    assert "untested" in {n.standing for n in checkers_noticed([])}
