"""Real request bodies, with the surface that the paper's contract gives each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sembridge.errors import BadInput
from sembridge.serving.surface import PAPER_SURFACES, decide

REQUESTS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/requests.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case["id"])
def test_a_real_request_gets_its_surface(case: dict[str, Any]) -> None:
    accepted = {case["expected_surface"], *case.get("also_acceptable", ())}
    try:
        decision = decide(case["body"], api=case["api"], engine=case.get("engine_context"))
    except BadInput as error:
        assert "reject" in accepted, error
        assert error.path.removeprefix("$.") in case["body"]
        return
    assert decision.paper_surface in accepted & set(PAPER_SURFACES)
    if "decided_by" in case:
        assert list(decision.decided_by) == case["decided_by"]
    if decision.paper_surface == "logprobs":
        assert decision.need.prompt == case.get("prompt_positions", False)
