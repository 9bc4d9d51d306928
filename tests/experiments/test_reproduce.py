"""The main job: Table 2, the edges, and results that are the same byte for byte."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from experiments.matrix import OBLIGATIONS, SHAPES, matrix, plan_of
from experiments.paper import PAPER
from experiments.real_edges import contracts, headline_edges
from experiments.registry import Claim, Standing, choose, exactly, load, not_validated
from experiments.table2 import COLUMNS, counts, judge, judges_agree
from oracle.layout_only import REDISTRIBUTIONS, plan_layout
from sembridge.check import check
from sembridge.contract import layout_of
from sembridge.verdict import Verdict


@pytest.fixture(scope="module")
def records():
    return [judge(item) for item in matrix()]


def test_the_family_is_the_one_described():
    cases = list(matrix())
    assert Counter(c.obligation for c in cases) == dict.fromkeys(OBLIGATIONS, 18)
    assert {(c.tp, c.domains) for c in cases} == set(SHAPES)
    lanes = {
        (c.tp, c.domains): sorted(
            Counter(x.domain for x in c.contract.consumers).values(), reverse=True
        )
        for c in cases
    }
    assert lanes == {
        (1, 1): [1],
        (2, 1): [2],
        (2, 2): [1, 1],
        (4, 1): [4],
        (4, 2): [2, 2],
        (4, 3): [2, 1, 1],
    }
    assert len({c.id for c in cases}) == 72
    assert all(
        not hasattr(fact, "origin") or fact.origin != "validation"
        for c in cases
        for fact in (c.contract.facts.owner, c.contract.facts.replica_classes)
    )


def test_table_2_is_computed_and_equals_the_papers(records):
    paper = PAPER["table2"]
    assert paper["columns"] == list(COLUMNS)
    for row, cells in counts(records).items():
        assert list(cells) == paper[row], row


def test_both_judges_agree_on_every_case_and_planner(records):
    assert all(judges_agree(r) for r in records)
    assert all(r["semantic verdict"] == r["reference verdict"] == "legal" for r in records)


def test_a_wrong_lowerer_would_show_in_table_2(records):
    spoiled = [r | {"semantic footprint": r["layout-only footprint"]} for r in records]
    assert counts(spoiled)["all"][2:4] == (0, 0)


@pytest.mark.parametrize("name", REDISTRIBUTIONS)
def test_every_layout_rule_serves_every_lane(name):
    for case in matrix():
        if case.obligation == "authority":
            continue
        ops = plan_layout(layout_of(case.contract), REDISTRIBUTIONS[name])
        report = check(case.contract, plan_of(case.contract, ops))
        assert report.verdict is Verdict.LEGAL, (name, case.id, report.violations)


def test_real_edges():
    assert len(contracts()) == PAPER["real_edges"]["all"]
    assert len(headline_edges()) == PAPER["real_edges"]["headline"]


def test_claims():
    assert exactly("a", "§", paper=3, ours=3).standing is Standing.HOLDS
    assert exactly("a", "§", paper=3, ours=4).standing is Standing.DIFFERS
    assert exactly("a", "§", ours=4, expected=4).standing is Standing.HOLDS
    assert not_validated("a", "§", paper=1, note="why").standing is Standing.NOT_VALIDATED
    assert Claim(name="a", where="b", standing=Standing.HOLDS).paper is None


def test_reproduce_writes_the_same_bytes_twice(sembridge, tmp_path):
    for run in ("one", "two"):
        ran = sembridge("reproduce", "table2", "edges", "wire", "--results", tmp_path / run)
        assert ran.code == 0
        assert "0 differs" in ran.out
    names = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert {"table2.json", "table2.csv", "table2.md", "table2.tex"} <= set(names)
    for name in names:
        one, two = ((tmp_path / run / name).read_bytes() for run in ("one", "two"))
        if name.endswith(".json"):
            one, two = json.loads(one), json.loads(two)
            assert one.pop("volatile")["python"] == two.pop("volatile")["python"]
        assert one == two, name


def test_committed_results_are_what_the_code_gives_now(sembridge, tmp_path, request):
    committed = request.config.rootpath / "results"
    assert sembridge("reproduce", "table2", "edges", "wire", "--results", tmp_path).code == 0
    for path in tmp_path.iterdir():
        if path.suffix != ".json":
            assert path.read_bytes() == (committed / path.name).read_bytes(), path.name


def test_a_claim_that_differs_fails_the_run(sembridge, tmp_path, monkeypatch):
    monkeypatch.setitem(PAPER["table2"], "all", [72, 54, 41, 48, 40])
    ran = sembridge("reproduce", "table2", "--results", tmp_path)
    assert ran.code == 1
    assert "1 differs" in ran.out


def test_choosing_experiments(sembridge, tmp_path):
    quick = {e.name for e in choose([])}
    assert quick == {e.name for e in load().values() if e.quick}
    assert {e.name for e in choose(["all"])} == set(load())
    ran = sembridge("reproduce", "table9", "--results", tmp_path)
    assert ran.code == 2
    assert "no experiment 'table9'" in ran.err
    assert "table2" in sembridge("reproduce", "--list").out


def test_exported_cases_are_files_that_commands_take(sembridge, tmp_path):
    assert sembridge("matrix", "--export", tmp_path).code == 0
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 72
    for folder in folders[::7]:
        assert sembridge("check", folder / "contract.json", folder / "plan.json").code == 0
    assert len(json.loads(sembridge("matrix", "--json").out)) == 72
