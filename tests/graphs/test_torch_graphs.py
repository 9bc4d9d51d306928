"""Reading torch's graphs, in memory and from archives alike, and modules by the Python call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sembridge.errors import BadInput
from sembridge.graphs.derive import derive, edge_at
from sembridge.graphs.program import Program
from sembridge.graphs.pt2 import read_pt2
from sembridge.layout import Partial, Replicate, Shard
from sembridge.lowering import compile_edge
from tests.graphs.programs import mesh

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `torch` has it")
pytestmark = pytest.mark.filterwarnings("default")  # torch's own, while it exports

from sembridge.graphs.torch_graphs import as_rank, export, module_facts, program_of  # noqa: E402
from tests.graphs import modules  # noqa: E402
from tests.graphs.make_archive import TARGET, archive  # noqa: E402


def saved(exported: Any, path: Path) -> Program:
    torch.export.save(exported, path)
    return read_pt2(path)


@pytest.mark.parametrize("kind", modules.BUILD)
def test_an_archive_reads_as_the_program_that_was_saved(kind: str, tmp_path: Path) -> None:
    with as_rank(0, 2):
        exported = torch.export.export(modules.BUILD[kind](2, 0), modules.inputs(kind))
    read, held = saved(exported, tmp_path / "p.pt2"), program_of(exported)
    described = mesh(modules.placements(held))
    ours, theirs = derive(read, described), derive(held, described)
    assert {k: ours.states[k] for k in theirs.states} == theirs.states
    assert [(n.name, n.op, n.type) for n in read.nodes if n.op != "getitem"] == [
        (n.name, n.op, n.type) for n in held.nodes if n.op != "getitem"
    ]


class Branches(torch.nn.Module):
    """A condition, several results, a dynamic axis, an autocast region, an in-place write."""

    def forward(self, p: Any, x: Any) -> Any:
        y = torch.cond(p, lambda x: x * 2, lambda x: x / 2, (x,))
        values, indices = torch.topk(y, 2)
        with torch.autocast("cpu", enabled=False):
            y = y + y
        z = torch.zeros(8)
        z.add_(1)
        return y.view(y.shape[0], 2, 4), values, indices, z


def test_subgraphs_and_dynamic_sizes(tmp_path: Path) -> None:
    args = (torch.tensor(True), torch.randn(4, 8))
    exported = torch.export.export(
        Branches(), args, dynamic_shapes=(None, {0: torch.export.Dim("rows")})
    )
    described = mesh({"p": Replicate(), "x": Shard(dim=0)})
    for program in (program_of(exported), saved(exported, tmp_path / "p.pt2")):
        derivation = derive(program, described)
        output = [ref.name for ref in program.nodes[-1].args["outputs"]]
        found = [derivation.at(name).placement for name in output]
        assert found == [Shard(dim=0)] * 3 + [None]
        derivation = derive(program, mesh({"p": Replicate(), "x": Partial(op="sum")}))
        assert [derivation.at(name).placement for name in output] == [
            Partial(op="sum"),
            None,
            None,
            None,
        ]


def test_export_functionalises_what_is_written_in_place() -> None:
    program = export(Branches(), (torch.tensor(True), torch.randn(4, 8)))
    described = mesh({"p": Replicate(), "x": Replicate()})
    output = program.nodes[-1].args["outputs"]
    assert derive(program, described).at(output[3].name).placement == Replicate()


def test_the_committed_archive_is_what_torch_writes_now(tmp_path: Path) -> None:
    if torch.__version__.split("+")[0] != "2.13.0":
        pytest.skip("the archive was written by torch 2.13.0")
    with as_rank(0, 2):
        exported = torch.export.export(modules.Block(2), modules.inputs("block"))
    again = tmp_path / "block.pt2"
    again.write_bytes(archive(exported))
    assert read_pt2(TARGET).nodes == read_pt2(again).nodes


def test_a_module_a_mesh_and_a_cut() -> None:
    """Each rank's module by itself, so that nobody has to vouch for the others."""
    described = mesh(
        {"*gate.weight": Shard(dim=0), "*up.weight": Shard(dim=0), "*down.weight": Shard(dim=1)}
        | {"x": Replicate()},
        same_program=False,
    )
    args = modules.inputs("mlp")
    found = module_facts(lambda rank: modules.Mlp(2), args, described, "down")
    assert found.placement == Partial(op="sum")
    compiled = compile_edge(edge_at(found, described, "mlp"), found.facts)
    assert [type(op).__name__ for op in compiled.plan.ops] == ["Reduce", "Send", "Broadcast"]
    with as_rank(0, 2):
        alone = module_facts(modules.Mlp(2), args, described, "down")
    assert "same_program" in alone.missing


def test_the_vocabulary_parallel_head_differs_between_ranks() -> None:
    described = mesh(
        {"table": Shard(dim=0), "head.weight": Shard(dim=0), "ids": Replicate()},
        same_program=False,
    )
    found = module_facts(lambda r: modules.Head(2, r), modules.inputs("head"), described, "head")
    assert found.placement == Shard(dim=2)


def test_what_is_no_graph_is_bad_input() -> None:
    with pytest.raises(BadInput, match="expected an exported program or a graph module, got int"):
        program_of(3)


def test_what_cannot_be_exported_is_bad_input() -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(BadInput, match=r"torch\.export cannot export Branching"):
        export(Branching(), (torch.ones(2),))


def test_a_process_group_that_exists_is_left_alone() -> None:
    with as_rank(0, 2), pytest.raises(BadInput, match="exists already"), as_rank(1, 2):
        pass
    assert not torch.distributed.is_initialized()


def test_a_traced_graph_of_aten_operators_is_read_too() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(lambda x, w: torch.relu(x @ w), tracing_mode="fake")(
        torch.ones(4, 8), torch.ones(8, 4)
    )
    program = program_of(traced)
    x, w = (n.name for n in program.nodes[:2])
    derivation = derive(program, mesh({x: Replicate(), w: Shard(dim=1)}))
    output = program.nodes[-1].args["outputs"][0].name
    assert derivation.at(output).placement == Shard(dim=1)


def test_a_symbolically_traced_module_shows_nothing() -> None:
    """torch.fx.symbolic_trace keeps Python functions and has no shapes: unknown, not guessed."""
    traced = torch.fx.symbolic_trace(torch.nn.ReLU())
    program = program_of(traced)
    (x,) = (n.name for n in program.nodes if n.is_input)
    derivation = derive(program, mesh({x: Replicate()}))
    states = [s for n, s in derivation.states.items() if n != x]
    assert [s.placement for s in states] == [None]
