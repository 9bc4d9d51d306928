"""The experiment on surfaces: every claim holds, and the committed results are these."""

from __future__ import annotations

import msgspec

from experiments.registry import Settings
from experiments.surfaces import surfaces


def test_claims_hold_and_committed_results_are_what_the_code_gives_now(request):
    found = surfaces(Settings())
    assert [c.name for c in found.checks if c.ours != c.expected] == []
    assert len(found.checks) == 13
    kinds = {(r["model"], r["surface"], r["owner"]) for r in found.records}
    assert len(kinds) == len(found.records) == 3 * 2 * 13
    assert {(r["verdict"], r["execution"]) for r in found.records} == {("legal", "equal")}
    committed = (request.config.rootpath / "results/surfaces.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(row) for row in committed] == [dict(r) for r in found.records]
