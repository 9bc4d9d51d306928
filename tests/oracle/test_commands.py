"""The oracle's commands as a user runs them: figures, certificates, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.matrix import matrix
from sembridge import io
from sembridge.contract import Contract
from sembridge.lowering import REFERENCE, lower


@pytest.fixture
def contract() -> Contract:
    return next(c.contract for c in matrix() if c.id == "replica.tp2.d1.v0")


@pytest.fixture
def files(tmp_path: Path, contract: Contract) -> tuple[Path, Path, Path]:
    """Contract, lowered plan, and the dearer reference plan."""
    paths = tuple(tmp_path / name for name in ("contract.json", "plan.json", "reference.json"))
    for path, document in zip(
        paths, (contract, lower(contract), lower(contract, REFERENCE)), strict=True
    ):
        path.write_bytes(io.encode(document))
    return paths[0], paths[1], paths[2]


def test_oracle_prints_the_agreed_document(sembridge, files) -> None:
    ran = sembridge("oracle", files[0], "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "programs": 8,
        "sequences": 12,
        "optimum": [30, 1, 30, 1, 0, 2],
        "pareto": [[30, 1, 30, 1, 0, 2], [60, 2, 0, 0, 0, 2]],
        "lowered": [30, 1, 30, 1, 0, 2],
        "lexicographic_optimal": True,
        "pareto_optimal": True,
    }


def test_oracle_lists_programs_cheapest_first(sembridge, files) -> None:
    ran = sembridge("oracle", files[0], "--json", "--list", 3)
    listed = json.loads(ran.out)["list"]
    assert [item["footprint"] for item in listed] == [[30, 1, 30, 1, 0, 2]] * 3
    assert len({json.dumps(item["plan"]) for item in listed}) == 3
    shown = sembridge("oracle", files[0], "--list", 1)
    assert "8 programs in 12 sequences" in shown.out
    assert "broadcast" in shown.out


def test_oracle_exit_codes(sembridge, files) -> None:
    outside = sembridge("oracle", files[0], "--bounds", "1,4,3")
    assert outside.code == 2
    assert "2 producers are outside" in outside.err
    assert sembridge("oracle", files[0], "--bounds", "4,x,3").code == 2
    assert sembridge("oracle", files[0], "--bounds", "0,4,3").code == 2
    assert sembridge("oracle", files[0], "--max-states", 1).code == 3
    quiet = sembridge("oracle", files[0], "--quiet")
    assert (quiet.code, quiet.out) == (0, "")


def test_oracle_says_when_the_lowered_plan_is_not_optimal(
    sembridge, files, contract, monkeypatch
) -> None:
    from sembridge.cli import oracle as commands
    from sembridge.lowering import lower_valid

    monkeypatch.setattr(commands, "lower_valid", lambda ob: lower_valid(ob, REFERENCE))
    ran = sembridge("oracle", files[0])
    assert ran.code == 1
    ran = sembridge("oracle", files[0], "--json")
    assert json.loads(ran.out)["lexicographic_optimal"] is False


def test_certificates_are_written_and_checked(sembridge, files, tmp_path: Path) -> None:
    contract, plan, reference = files
    certificate = tmp_path / "certificate.json"
    assert sembridge("certify", contract, plan, "-o", certificate).code == 0
    assert sembridge("certify", contract, plan).out.encode() == certificate.read_bytes()
    proven = sembridge("certify", contract, plan, "--verify", certificate)
    assert (proven.code, proven.out) == (0, "proven: minimal among every legal plan\n")
    other = sembridge("certify", contract, reference, "--verify", certificate, "--json")
    assert other.code == 1
    assert json.loads(other.out)["proven"] is False


def test_certify_refuses_what_it_cannot_prove(sembridge, files, tmp_path: Path) -> None:
    contract, plan, reference = files
    dear = sembridge("certify", contract, reference)
    assert dear.code == 1
    assert "not proven minimal" in dear.err
    document = json.loads(plan.read_text())
    document["ops"] = document["ops"][:1]
    short = tmp_path / "short.json"
    short.write_text(json.dumps(document))
    illegal = sembridge("certify", contract, short)
    assert illegal.code == 1
    assert "the plan is illegal" in illegal.err


def test_certify_bad_input(sembridge, files, tmp_path: Path) -> None:
    contract, plan, _ = files
    torn = tmp_path / "torn.json"
    torn.write_text('{"format": "sembridge.certificate/1"}')
    ran = sembridge("certify", contract, plan, "--verify", torn)
    assert ran.code == 2
    assert "torn.json" in ran.err
    both = sembridge("certify", contract, plan, "--verify", torn, "-o", tmp_path / "x.json")
    assert both.code == 2


@pytest.mark.parametrize("engine", ["serial", "local"])
def test_family_surveys_all_within_the_bounds(sembridge, tmp_path: Path, engine: str) -> None:
    journal = tmp_path / "family.jsonl"
    options = ("--bounds", "2,2,1", "--execute", 5, "--engine", engine, "--jobs", 2)
    ran = sembridge("family", *options, "--journal", journal, "--json")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert found["contracts"] > 500
    assert found["named_contracts"] > found["contracts"]
    assert found["executed_rejected"] == found["rejected_that_differ"] > 0
    assert not any(found[key] for key in ("not_optimal", "dominated", "unproven", "wrong"))
    resumed = sembridge("family", *options, "--journal", journal, "--json")
    assert resumed.out == ran.out
    assert sembridge("family", "--bounds", "2,2,1", "--scheduler", "tcp://x:1").code == 2
