"""From a graph's facts to contracts that lower and check, and the commands; without torch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sembridge.contract import Contract, RuntimeFacts
from sembridge.errors import BadInput, ContractRejected
from sembridge.graphs.derive import CutFacts, derive, edge_at, facts_at
from sembridge.graphs.mesh import Group
from sembridge.graphs.program import Program
from sembridge.graphs.pt2 import read_pt2
from sembridge.graphs.torch_graphs import import_torch, program_of
from sembridge.layout import Partial, Replicate, Shard
from sembridge.lowering import Compiled, compile_edge
from sembridge.plan import AllGather, Broadcast, Reduce, Send
from sembridge.surfaces import Tokens
from sembridge.verdict import Verdict
from tests.graphs.programs import REPLICATE, SUM, mesh, node, tensor

DATA = Path(__file__).parents[1] / "data/graphs"
BLOCK, MESH = DATA / "block.pt2", DATA / "mesh.json"


def cut(name: str, **options: Any) -> tuple[CutFacts, Compiled]:
    """Facts, contract and plan at a cut of a small row-parallel product."""
    program = Program(
        nodes=(
            tensor("x", 4, 8),
            tensor("w", 6, 8),
            node("active", "aten.silu.default", 4, 8, self_="%x"),
            node("product", "aten.linear.default", 4, 6, input="%active", weight="%w"),
            node(
                "reduced",
                "_c10d_functional.all_reduce.default",
                4,
                6,
                input="%product",
                reduce_op="sum",
                group_name="0",
            ),
            node("noise", "aten.rand_like.default", 4, 6, self_="%reduced"),
            node("scalar", "aten.rand.default"),
            node("constant", "aten.full.default", 4, 6, size=[4, 6], fill_value=1),
            node(
                "twice",
                "_c10d_functional.all_reduce.default",
                4,
                6,
                input="%reduced",
                reduce_op="sum",
                group_name="0",
            ),
        )
    )
    described = mesh({"x": Shard(dim=1), "w": Shard(dim=1)}, **options)
    found = facts_at([program], described, name)
    return found, compile_edge(edge_at(found, described), found.facts)


def kinds(compiled: Compiled) -> list[type]:
    assert compiled.report.verdict is Verdict.LEGAL
    return [type(op) for op in compiled.plan.ops]


def test_a_row_parallel_product_is_reduced_before_it_crosses() -> None:
    found, compiled = cut("product")
    fact = compiled.contract.facts.reduction
    assert found.placement == SUM
    assert fact is not None
    assert (fact.origin, fact.by, fact.value.sources) == ("graph", "linear product", ("p0", "p1"))
    assert kinds(compiled) == [Reduce, Send, Broadcast]


def test_a_completed_all_reduce_sends_one_representative() -> None:
    found, compiled = cut("reduced")
    fact = compiled.contract.facts.replica_classes
    assert found.placement == REPLICATE
    assert fact is not None
    assert (fact.origin, fact.by, fact.value) == ("graph", "all_reduce reduced", (("p0", "p1"),))
    assert kinds(compiled) == [Send, Broadcast]


def test_a_sharded_activation_keeps_its_lanes() -> None:
    found, compiled = cut("active")
    assert found.placement == Shard(dim=1)
    assert [(op.src, op.dst) for op in compiled.plan.ops] == [("p0", "c0"), ("p1", "c1")]
    assert kinds(compiled) == [Send, Send]


def test_what_is_replicated_by_layout_alone_is_assembled() -> None:
    found, compiled = cut("constant")
    assert (found.placement, found.facts.replica_classes) == (REPLICATE, None)
    assert kinds(compiled) == [Send, Send, AllGather]


@pytest.mark.parametrize(
    ("name", "options", "missing"),
    [
        ("noise", {}, "no rule for aten.rand_like.default"),
        ("reduced", {"same_program": False}, "same_program"),
        ("product", {"same_program": False}, "same_program"),
        ("twice", {}, "counted 2 times"),
    ],
)
def test_what_the_graph_does_not_show_crosses_lane_by_lane(
    name: str, options: dict[str, Any], missing: str
) -> None:
    found, compiled = cut(name, **options)
    facts = compiled.contract.facts
    assert missing in found.missing
    assert (facts.replica_classes, facts.reduction) == (None, None)
    assert [(op.src, op.dst) for op in compiled.plan.ops] == [("p0", "c0"), ("p1", "c1")]


def test_of_what_is_unknown_no_token_is_projected() -> None:
    found, _ = cut("noise")
    edge = edge_at(found, mesh({}))
    with pytest.raises(ContractRejected, match=r"contract\.projection"):
        compile_edge(edge, found.facts, RuntimeFacts(surface=Tokens()))


def test_an_unknown_scalar_is_bad_input() -> None:
    with pytest.raises(BadInput, match="nothing is known of the scalar"):
        cut("scalar")


def test_a_partial_across_another_group_withholds_every_fact() -> None:
    described = mesh({"x": REPLICATE})
    other = Group(ranks=3, names=("7",), placements={"x": SUM})
    described = type(described)(
        **{f: getattr(described, f) for f in described.__struct_fields__}
        | {"groups": {**described.groups, "dp": other}}
    )
    gather = node(
        "y", "_c10d_functional.all_reduce.default", 4, input="%x", reduce_op="max", group_name="tp"
    )
    found = facts_at([Program(nodes=(tensor("x", 4), gather))], described, "y")
    assert found.element.placement == REPLICATE
    assert found.facts.replica_classes is None
    assert "across dp" in found.missing


MESHES: list[tuple[dict[str, Any], str]] = [
    ({"y.weight": REPLICATE}, "names no input of the graph"),
    ({"x": Shard(dim=2)}, "2 is no axis of x"),
    ({"x*": REPLICATE, "*": SUM}, "disagree about x"),
]


@pytest.mark.parametrize(("placements", "message"), MESHES)
def test_a_mesh_that_does_not_fit_is_bad_input(placements: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        derive(Program(nodes=(tensor("x", 4, 4),)), mesh(placements))


def test_a_group_that_the_mesh_does_not_name_is_bad_input() -> None:
    stray = node(
        "y", "_c10d_functional.all_reduce.default", 4, input="%x", reduce_op="sum", group_name="9"
    )
    with pytest.raises(BadInput, match="group '9'"):
        derive(Program(nodes=(tensor("x", 4), stray)), mesh({"x": SUM}))


def test_exact_names_stand_before_patterns_and_the_rest_is_unknown() -> None:
    program = Program(nodes=(tensor("x", 4, 4), tensor("xx", 4, 4), tensor("y", 4, 4)))
    found = derive(program, mesh({"x": Shard(dim=-1), "x*": REPLICATE}))
    assert [found.at(n).placement for n in ("x", "xx", "y")] == [Shard(dim=1), REPLICATE, None]


CUTS = [
    ("mlp.down", Partial(op="sum"), "linear_6", "reduction"),
    ("attention.q", Shard(dim=2), "linear", ""),
    ("mlp", Replicate(), "wait_tensor_1", "replica_classes"),
    ("add_6", Replicate(), "add_6", "replica_classes"),
]


@pytest.mark.parametrize(("at", "placement", "name", "fact"), CUTS)
def test_edges_of_an_exported_program(
    sembridge: Callable[..., Any], at: str, placement: Any, name: str, fact: str
) -> None:
    ran = sembridge("edges", "--graph", BLOCK, "--cut", at, "--domains", MESH, "--json")
    assert (ran.code, ran.err) == (0, "")
    (edge,) = json.loads(ran.out)["edges"]
    contract = edge["contract"]
    assert edge["verdict"] == "legal"
    assert contract["name"] == name
    assert contract["placement"] == json.loads(json.dumps(_plain(placement)))
    assert [k for k, v in contract["facts"].items() if v["origin"] == "graph"] == [fact] * bool(
        fact
    )


def _plain(placement: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(placement)


def test_edges_exports_a_contract_that_reads_back(
    sembridge: Callable[..., Any], tmp_path: Path
) -> None:
    from sembridge import io
    from sembridge.check import check

    ran = sembridge(
        "edges", "--graph", BLOCK, "--cut", "mlp", "--domains", MESH, "--export", tmp_path
    )
    assert ran.code == 0
    folder = tmp_path / "wait_tensor_1"
    contract, plan = io.read_contract(folder / "contract.json"), io.read_plan(folder / "plan.json")
    assert isinstance(contract, Contract)
    assert contract.facts.replica_classes is not None
    assert contract.facts.replica_classes.by == "all_reduce all_reduce_1 in mlp"
    assert check(contract, plan).verdict is Verdict.LEGAL


def test_edges_says_what_is_missing(sembridge: Callable[..., Any], tmp_path: Path) -> None:
    document = json.loads(MESH.read_text())
    del document["groups"]["tp"]["placements"]["*.down.weight"]
    poorer = tmp_path / "mesh.json"
    poorer.write_text(json.dumps(document))
    ran = sembridge("edges", "--graph", BLOCK, "--cut", "mlp.down", "--domains", poorer)
    assert ran.code == 0
    assert "no facts: unknown since mlp.down.weight: the mesh says nothing of it" not in ran.out
    assert "no facts: unknown since mlp.down.weight" in ran.err


def test_placements_lists_every_node(sembridge: Callable[..., Any]) -> None:
    ran = sembridge("placements", BLOCK, "--domains", MESH, "--json")
    listed = {n["node"]: n["placement"] for n in json.loads(ran.out)["nodes"]}
    assert (ran.code, listed["linear_6"], listed["x"]) == (0, "partial(sum, tp)", "replicate(tp)")
    assert "unknown" not in listed.values()
    text = sembridge("placements", BLOCK, "--domains", MESH)
    assert "partial(sum," in text.out  # a narrow table wraps the rest


BAD: list[tuple[list[Any], str]] = [
    (["--graph", BLOCK, "--cut", "mlp.dwn", "--domains", MESH], "no node or module 'mlp.dwn'"),
    (["--graph", BLOCK, "--domains", MESH], "needs --cut and --domains"),
    (["--graph", BLOCK, "--cut", "mlp"], "needs --cut and --domains"),
    ([], "--model-config or --graph"),
    (["--graph", BLOCK, "--model-config", MESH], "not both"),
    (["--graph", MESH, "--cut", "mlp", "--domains", MESH], "not an exported program"),
    (["--graph", BLOCK, "--cut", "mlp", "--domains", BLOCK], "not JSON"),
    (["--graph", "nowhere.pt2", "--cut", "mlp", "--domains", MESH], "cannot read"),
    (["--graph", BLOCK, "--cut", "mlp", "--domains", MESH, "--owner", 2], "rank 2 of 2"),
    (["--model-config", MESH], "needs --tp"),
    (["--model-config", MESH, "--tp", 2, "--cut", "mlp"], "expected a number of layers"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_line_and_two(
    sembridge: Callable[..., Any], arguments: list[Any], message: str
) -> None:
    ran = sembridge("edges", *arguments)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert message in ran.err


MALFORMED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda g: g["nodes"].reverse(), "which no node before it makes"),
    (lambda g: g["nodes"].append(g["nodes"][0]), "two nodes are called"),
    (lambda g: g["nodes"][0].pop("target"), "target"),
    (lambda g: g["nodes"][0]["inputs"][0].update(arg={}), "expected one tagged value"),
    (lambda g: g["nodes"][0]["inputs"][0].update(arg={"as_tensor": 3}), "expected a value's name"),
    (lambda g: g["nodes"][0]["inputs"][0].update(arg={"as_graph": {}}), "not an exported program"),
    (lambda g: g["nodes"][0]["inputs"][0].update(arg={"as_ints": [{}]}), "not an exported program"),
    (lambda g: g.pop("tensor_values"), "tensor_values"),
]


@pytest.mark.parametrize(("spoil", "message"), MALFORMED)
def test_a_malformed_archive_is_bad_input(
    tmp_path: Path, spoil: Callable[[Any], Any], message: str
) -> None:
    with zipfile.ZipFile(BLOCK) as archive:
        document = json.loads(archive.read("block/models/model.json"))
    spoil(document["graph_module"]["graph"])
    spoiled = tmp_path / "spoiled.pt2"
    with zipfile.ZipFile(spoiled, "w") as archive:
        archive.writestr("a/models/model.json", json.dumps(document))
    with pytest.raises(BadInput, match=message):
        read_pt2(spoiled)


def test_arguments_without_sense_are_unknown() -> None:
    program = Program(
        nodes=(tensor("x", 4), node("y", "aten.transpose.int", 4, self_="%x", dim0="a", dim1=[]))
    )
    assert derive(program, mesh({"x": Shard(dim=0)})).at("y").placement is None


def test_a_truncated_archive_is_bad_input(tmp_path: Path) -> None:
    cut_off = tmp_path / "cut.pt2"
    cut_off.write_bytes(BLOCK.read_bytes()[:-40])
    with pytest.raises(BadInput, match="not an exported program"):
        read_pt2(cut_off)


@pytest.mark.parametrize(
    "error", [ImportError("No module named 'torch'"), RuntimeError("x\nlibhccl.so: not found")]
)
def test_without_torch_one_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_name: str) -> None:
        raise error

    monkeypatch.setattr("sembridge.graphs.torch_graphs.importlib.import_module", fail)
    with pytest.raises(
        BadInput, match=r"need torch \(pip install 'sembridge\[torch\]'\): "
    ) as found:
        import_torch()
    assert "\n" not in str(found.value)
    with pytest.raises(BadInput):
        program_of(object())
