"""The main job: Table 2, the edges, and results that are the same byte for byte."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest

from experiments import documents
from experiments.documents import differences, document
from experiments.ledger import Check, Standing, ledger, paper
from experiments.matrix import OBLIGATIONS, SHAPES, matrix, plan_of
from experiments.real_edges import contracts, headline_edges
from experiments.registry import EXPERIMENTS, Result, Settings, Volatile, choose, load
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
    for row, cells in counts(records).items():
        assert list(cells) == [paper(f"table2.{row}.{column}") for column in COLUMNS], row


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
    assert len(contracts()) == paper("real_edges.all")
    assert len(headline_edges()) == paper("real_edges.headline")


def written(folder):
    """Every file below a folder, what varies left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "volatile" not in path.parts:
            data = path.read_bytes()
            if path.suffix == ".json":
                document = json.loads(data)
                assert document.pop("volatile")["provenance"]["python"]
                data = json.dumps(document)
            found[path.relative_to(folder).as_posix()] = data
    return found


def test_reproduce_writes_the_same_bytes_twice(sembridge, tmp_path):
    for run in ("one", "two"):
        ran = sembridge("reproduce", "table2", "edges", "wire", "--results", tmp_path / run)
        assert ran.code == 0
        assert "0 differs" in ran.out
    one = written(tmp_path / "one")
    assert {"table2.json", "table2.jsonl", "table2.csv", "table2.md", "table2.tex"} <= one.keys()
    assert one == written(tmp_path / "two")


def test_committed_results_are_what_the_code_gives_now(sembridge, request):
    committed = request.config.rootpath / "results"
    ran = sembridge("reproduce", "table2", "edges", "wire", "--diff", "--results", committed)
    assert (ran.code, ran.out.splitlines()[0][:13]) == (0, "0 differences")


def test_diff_prints_what_differs_and_leaves_the_results_alone(sembridge, tmp_path):
    assert sembridge("reproduce", "table2", "wire", "--results", tmp_path).code == 0
    path = tmp_path / "table2.json"
    spoiled = path.read_text(encoding="utf-8").replace('"ours": 13', '"ours": 12', 1)
    path.write_text(spoiled, encoding="utf-8")
    (tmp_path / "wire.json").unlink()
    ran = sembridge("reproduce", "table2", "wire", "--diff", "--results", tmp_path)
    assert ran.code == 1
    assert "table2.claims[2].ours: 12, now 13" in ran.out
    assert f"wire: not in {tmp_path}" in ran.out.replace("\n", "")
    assert path.read_text(encoding="utf-8") == spoiled
    assert not (tmp_path / ".unfinished").exists()


def test_raw_rows_are_compared_too(sembridge, tmp_path):
    for run in ("one", "two"):
        assert sembridge("reproduce", "table2", "--results", tmp_path / run, "-q").code == 0
    raw = tmp_path / "one" / "table2.jsonl"
    lines = raw.read_text(encoding="utf-8").splitlines(keepends=True)
    raw.write_text("".join(lines[:-1]), encoding="utf-8")
    found = list(differences(tmp_path / "one", tmp_path / "two", ["table2"]))
    assert found == ["table2.jsonl: 71 entries, now 72"]


def test_an_interrupted_run_goes_on_where_it_was(sembridge, tmp_path, monkeypatch):
    load()
    ran: list[str] = []

    def noted(name, stop=False):
        original = EXPERIMENTS[name]

        def run(settings):
            ran.append(name)
            if stop:
                raise KeyboardInterrupt
            return original.run(settings)

        monkeypatch.setitem(EXPERIMENTS, name, msgspec.structs.replace(original, run=run))
        return original

    noted("table2")
    edges = noted("edges", stop=True)
    assert sembridge("reproduce", "table2", "edges", "--results", tmp_path).code == 130
    monkeypatch.setitem(EXPERIMENTS, "edges", edges)
    again = sembridge("reproduce", "table2", "edges", "--results", tmp_path)
    assert (again.code, ran) == (0, ["table2", "edges"])
    assert sembridge("reproduce", "table2", "--results", tmp_path).code == 0
    assert ran == ["table2", "edges", "table2"]


def test_a_claim_that_differs_fails_the_run(sembridge, tmp_path, monkeypatch):
    claim = ledger()["table2.all.bytes_lower"]
    other = msgspec.structs.replace(claim, paper=41)
    monkeypatch.setattr(documents, "ledger", lambda: ledger() | {claim.name: other})
    ran = sembridge("reproduce", "table2", "--results", tmp_path)
    assert ran.code == 1
    assert "1 differs" in ran.out


SOME = Result(name="table2", how="somehow", measured={"table2.all.cases": 72})


def standings(result):
    lines = document(result, Settings(), 0.0).lines
    return {one.name: (one.standing, one.note) for one in lines}


def test_a_claim_that_is_not_measured_was_not_run():
    result = msgspec.structs.replace(SOME, not_run="no engine here")
    assert standings(result)["table2.all.cases"] == (Standing.HOLDS, "")
    assert standings(result)["table2.all.established"] == (Standing.NOT_RUN, "no engine here")


def test_measuring_what_nobody_claims_is_a_defect():
    with pytest.raises(ValueError, match=r"edges\.all"):
        document(msgspec.structs.replace(SOME, measured={"edges.all": 13}), Settings(), 0.0)


def test_checks_of_this_kits_own_fail_a_run_too():
    checks = (Check(name="same", ours=3, expected=3), Check(name="other", ours=3, expected=4))
    found = standings(msgspec.structs.replace(SOME, checks=checks))
    assert found["same"][0] is Standing.HOLDS
    assert found["other"][0] is Standing.DIFFERS


def test_what_is_timed_stands_in_the_volatile_part_alone():
    timed = msgspec.structs.replace(
        SOME, measured={}, volatile=Volatile(measured={"table2.all.cases": 72})
    )
    found = document(timed, Settings(), 0.0)
    assert [c.name for c in found.volatile.claims] == ["table2.all.cases"]
    assert "table2.all.cases" not in {c.name for c in found.claims}


def test_render_makes_tables_from_raw_results_alone(sembridge, tmp_path):
    assert sembridge("reproduce", "table2", "compile", "--results", tmp_path).code == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for path in before:
        if path.suffix in (".md", ".tex", ".csv"):
            path.unlink()
    assert sembridge("render", "csv", "tables", "--results", tmp_path).code == 0
    assert {p: p.read_bytes() for p in before} == before
    ran = sembridge("render", "pie", "--results", tmp_path)
    assert (ran.code, "no step 'pie'" in ran.err) == (2, True)


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
