"""prove, replay and judges as commands: exit codes, clean stdout, files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sembridge import io
from sembridge.lowering import lower
from sembridge.plan import Send

from .corpus import MATRIX, plan

CASES = Path(__file__).parents[1] / "cases"
Run = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str, str], tuple[Path, Path]]:
    def write(obligation: str, kind: str) -> tuple[Path, Path]:
        contract = MATRIX[obligation]
        chosen = lower(contract) if kind == "legal" else plan(contract, Send(src="p0", dst="c1"))
        io.write(tmp_path / "contract.json", io.encode(contract))
        io.write(tmp_path / "plan.json", io.encode(chosen))
        return tmp_path / "contract.json", tmp_path / "plan.json"

    return write


def test_a_legal_plan_exits_with_0_and_names_its_facts(sembridge: Run, files: Any) -> None:
    ran = sembridge("prove", *files("replica", "legal"), "--json")
    found = json.loads(ran.out)
    assert (ran.code, ran.err, found["verdict"], found["violations"]) == (0, "", "legal", [])
    assert found["facts"] == ["placement", 'replica_classes of "p0"', "domains"]
    assert found["counterexample"] is None
    assert found["solver"].startswith("z3 ")


def test_an_illegal_plan_exits_with_1_and_its_witness_replays(
    sembridge: Run, files: Any, tmp_path: Path
) -> None:
    witness = tmp_path / "witness.json"
    ran = sembridge("prove", *files("exact_shard", "broken"), "--json", "--witness", witness)
    found = json.loads(ran.out)
    assert (ran.code, found["verdict"]) == (1, "illegal")
    assert {v["rule"] for v in found["violations"]} == {"coverage", "provenance"}
    assert found["counterexample"] == json.loads(witness.read_text())
    again = sembridge("replay", witness)
    assert again.code == 0
    assert "confirmed" in again.out


def test_a_witness_that_claims_too_much_exits_with_1(
    sembridge: Run, files: Any, tmp_path: Path
) -> None:
    witness = tmp_path / "witness.json"
    sembridge("prove", *files("exact_shard", "broken"), "--quiet", "--witness", witness)
    raw = json.loads(witness.read_text())
    raw["shows"]["observed"] = [6]
    witness.write_text(json.dumps(raw))
    assert sembridge("replay", witness).code == 1


def test_an_ended_budget_exits_with_3(sembridge: Run, files: Any) -> None:
    ran = sembridge("prove", *files("partial", "legal"), "--rlimit", "1", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["verdict"]) == (3, "unknown")
    assert found["reason"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("prove",),
        ("prove", "nowhere.json", "nowhere.json"),
        ("prove", "--theorem", "contract.json"),
        ("replay", "nowhere.json"),
        ("judges", "--cases", "nowhere"),
        ("judges", "--judge", "checker"),
    ],
)
def test_bad_input_exits_with_2_and_one_line(
    arguments: tuple[str, ...], sembridge: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = sembridge(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1


def test_the_theorem_is_proved_and_its_lemmas_dumped(sembridge: Run, tmp_path: Path) -> None:
    ran = sembridge("prove", "--theorem", "--json", "--dump-smt", tmp_path / "smt")
    found = json.loads(ran.out)
    assert (ran.code, found["theorem"]) == (0, "proved")
    assert len(list((tmp_path / "smt").glob("lemma-*.smt2"))) == len(found["lemmas"])
    assert len(found["assumptions"]) > 5


def test_judges_agree_on_the_cases_and_catch_a_wrong_one(sembridge: Run) -> None:
    ran = sembridge("judges", "--cases", CASES, "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["agreement"]["cases"]["disagreements"]) == (0, 0)
    wrong = sembridge(
        "judges", "--cases", CASES, "--judge", "checker", "--judge", "accept-all", "--quiet"
    )
    assert wrong.code == 1
    assert "accept-all says legal" in wrong.out
