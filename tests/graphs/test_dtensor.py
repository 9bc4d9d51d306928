"""What is derived, held against DTensor's own placements on the same modules."""

from __future__ import annotations

import importlib.util

import pytest

from sembridge.errors import BadInput
from sembridge.layout import Partial, Replicate, Shard

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `torch` has it")
pytestmark = pytest.mark.filterwarnings("default")  # torch's own, while it compiles

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

from sembridge.graphs.dtensor import capture, hooked  # noqa: E402
from sembridge.graphs.torch_graphs import as_rank  # noqa: E402
from tests.graphs import parallel  # noqa: E402

COINCIDE = {
    "mlp": 3,
    "mlp-partial": 3,
    "attention": 4,
    "block": 10,
    "sequence-block": 10,
    "head": 2,
    "head-gathered": 2,
    "qwen3": 13,
    "minimax-m2": 10,
}
"""How many submodule outputs the graph and DTensor place alike: on each case all of them."""

WITH_TRANSFORMERS = {"qwen3", "minimax-m2"}


def needs(name: str) -> None:
    if name in WITH_TRANSFORMERS and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: it builds this block")


@pytest.mark.parametrize("name", parallel.CASES)
def test_no_fact_that_dtensor_contradicts(name: str) -> None:
    needs(name)
    captured = parallel.captured(name, 2)
    derivation = captured.derive("tp", 2, {"0"})
    pairs = [
        (derivation.at(node).placement, output.placement)
        for node, output in zip(captured.results, captured.outputs, strict=True)
    ]
    assert all(ours in (None, theirs) for ours, theirs in pairs)
    assert sum(ours is not None and ours == theirs for ours, theirs in pairs) == COINCIDE[name]
    assert derivation.doubts == ()


@pytest.mark.parametrize("name", ["mlp-partial", "sequence-block"])
def test_hooks_and_graph_say_the_same(name: str) -> None:
    """Module by module where the graph names the module that ran a node."""
    with as_rank(0, 2):
        case = parallel.CASES[name](init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)))
        found = hooked(case.module, case.args, case.kwargs, group="tp")
    placements = {path: e.placement for path, e in found.items()}
    down = "mlp.down" if name == "sequence-block" else "down"
    expected = Shard(dim=1) if name == "sequence-block" else Partial(op="sum")
    assert placements[down] == placements[""] == expected
    assert {placements[down.replace("down", m)] for m in ("gate", "up") if m in placements} <= {
        Shard(dim=2)
    }


def test_a_replica_that_only_dtensor_names_is_one_by_layout() -> None:
    with as_rank(0, 2):
        case = parallel.mlp(init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)))
        found = hooked(case.module, case.args, group="tp")
    assert found[""].placement == Replicate()
    assert found[""].completed is None


def test_a_replica_of_the_captured_graph_has_its_collective() -> None:
    captured = parallel.captured("mlp", 2)
    derivation = captured.derive("tp", 2, {"0"})
    last = derivation.at(captured.results[-1])
    assert (last.placement, last.completed) == (Replicate(), "all_reduce")


def test_a_module_that_breaks_the_graph_is_bad_input() -> None:
    class Breaks(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            torch._dynamo.graph_break()
            return x + 1

    with as_rank(0, 2), pytest.raises(BadInput, match="does not compile to one graph"):
        capture(Breaks(), (torch.ones(2),), group="tp")
