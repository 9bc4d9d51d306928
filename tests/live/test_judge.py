"""The live run beside the other judges, over the matrix, the edges and the cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.judges import case_pairs, edge_pairs, matrix_pairs
from oracle.judges import compare
from oracle.samples import draw_pairs

pytest.importorskip("torch", reason="torch is not installed: the extra `live` has it")

CASES = Path(__file__).parent.parent / "cases"


@pytest.mark.parametrize("source", ["matrix", "edges", "cases", "random"])
def test_no_plan_that_is_called_legal_differs_live(source: str):
    pairs = {
        "matrix": matrix_pairs,
        "edges": edge_pairs,
        "cases": lambda: case_pairs(CASES),
        "random": lambda: draw_pairs(1, 400),
    }[source]
    found = compare(pairs(), ("checker", "reference", "live"))
    assert found.shown == ()
    opinions = dict(found.opinions)
    assert opinions["legal", "equal", "equal"] > 0
    assert any("differs" in o[2] or "fault" in o[2] for o in opinions)
    # What the live run refutes, the reference refutes too.
    assert not any(o[1] == "equal" and o[2] in ("differs", "fault") for o in opinions)


def test_the_command_asks_the_live_run(sembridge):
    ran = sembridge("judges", "--cases", CASES / "partial-completed", "--live", "--json")
    assert ran.code == 0
    assert '"live"' in ran.out
    assert '"opinions":[[["legal","legal","equal","legal","equal"],1]]' in ran.out.replace(
        " ", ""
    ).replace("\n", "")
