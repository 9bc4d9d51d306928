"""Shared cases through the command line: verdict, rule, exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CASES = sorted((Path(__file__).parent.parent / "cases").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_expected_verdict_and_rule(case, sembridge):
    expect = json.loads((case / "expect.json").read_text())
    ran = sembridge("check", case / "contract.json", case / "plan.json", "--json")
    report = json.loads(ran.out)
    assert report["verdict"] == expect["verdict"]
    assert ran.code == (0 if expect["verdict"] == "legal" else 1)
    rules = {v["rule"] for v in report["violations"]}
    if expect["verdict"] == "legal":
        assert not rules
    else:
        assert rules & {expect["rule"], *expect.get("also", [])}
    assert not ran.err


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_every_contract_lowers_to_a_legal_plan_or_is_rejected(case, sembridge, tmp_path):
    plan = tmp_path / "plan.json"
    for policy in ("semantic", "reference", "mapped-copies", "+demand", "+multicast"):
        ran = sembridge("lower", case / "contract.json", "--policy", policy, "-o", plan)
        if case.name == "bug-07-local-argmax":
            assert ran.code == 1
            assert "contract.projection" in ran.err
            assert not plan.exists()
        else:
            assert ran.code == 0
            assert sembridge("check", case / "contract.json", plan).code == 0
