"""The mutate command: exit codes, clean stdout, replay."""

from __future__ import annotations

import json

import pytest

from mutations.operators import OPERATORS
from sembridge import io
from sembridge.lowering import lower
from tests.core.build import contract

STALE = "matrix/replica.tp2.d1.v0/semantic:stale-tag:2"


@pytest.fixture
def files(tmp_path):
    edge = contract(classes=(("p0", "p1"),))
    paths = tmp_path / "contract.json", tmp_path / "plan.json"
    io.write(paths[0], io.encode(edge))
    io.write(paths[1], io.encode(lower(edge)))
    return paths


def test_a_pair_of_files(sembridge, files, tmp_path):
    ran = sembridge("mutate", *files, "--engine", "serial", "--results", tmp_path / "out")
    assert ran.code == 0
    assert "score 100.0 %" in ran.out
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert names == {
        "mutants.jsonl",
        "mutants.csv",
        "operators-rules.svg",
        "operators-judges.svg",
        "report.html",
    }


def test_json_is_clean_and_the_score_is_held_against_a_bound(sembridge, files):
    options = ("--engine", "serial", "--json", "--operators", "drop-delivery")
    ran = sembridge("mutate", *files, *options, "--fail-under", "100")
    document = json.loads(ran.out)
    assert ran.code == 0
    assert (
        document["summary"]["mutants"]
        == document["summary"]["classes"]["killed for the expected rule"]
    )


def test_show_replays_a_mutant(sembridge, tmp_path):
    ran = sembridge("mutate", "--show", STALE, "--export", tmp_path)
    assert ran.code == 0
    assert "class: killed for the expected rule" in ran.out
    assert '+{"contract":"replica.tp2.d1.v0"' in ran.out
    assert f"replay: sembridge mutate --show '{STALE}'" in ran.out
    checked = sembridge("check", tmp_path / "contract.json", tmp_path / "plan.json", "--json")
    assert checked.code == 1
    assert [v["rule"] for v in json.loads(checked.out)["violations"]] == ["identity"]


def test_show_of_a_stillborn_mutant(sembridge):
    ran = sembridge("mutate", "--show", OPERATORS["dangling-owner"].example, "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["record"]["outcome"] == "stillborn"
    assert (
        "no such producer" in sembridge("mutate", "--show", OPERATORS["dangling-owner"].example).out
    )


def test_list_names_every_operator(sembridge):
    listed = json.loads(sembridge("mutate", "--list", "--json").out)
    assert [o["name"] for o in listed] == list(OPERATORS)
    assert f"{len(OPERATORS)} operators" in sembridge("mutate", "--list").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--operators", "none"),
        ("--engine", "none", "--matrix"),
        ("--show", "none"),
        ("--show", "matrix/none:drop-delivery:0"),
        ("no-such-contract.json",),
    ],
)
def test_bad_input(sembridge, arguments):
    ran = sembridge("mutate", *arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1


def test_only_accepted_plans_are_mutated(sembridge, files):
    plan = json.loads(files[1].read_bytes())
    plan["ops"] = plan["ops"][:1]
    files[1].write_text(json.dumps(plan))
    ran = sembridge("mutate", *files)
    assert ran.code == 2
    assert "coverage" in ran.err
