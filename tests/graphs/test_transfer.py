"""Transfer rules one by one, without torch."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sembridge.errors import BadInput
from sembridge.graphs.lattice import join
from sembridge.graphs.program import Node, Program, Ref, Varying, merge
from sembridge.graphs.transfer import RULES, reshaped
from sembridge.layout import Partial, Placement, Shard
from tests.graphs.programs import (
    MAX,
    PLACEMENTS,
    REPLICATE,
    SUM,
    derived,
    element,
    node,
    tensor,
)

ROWS, COLUMNS = Shard(dim=0), Shard(dim=1)


def placed(
    inputs: dict[str, tuple[Placement | None, tuple[int, ...]]],
    op: str,
    shape: tuple[int, ...],
    **args: Any,
) -> Placement | None:
    """Placement of ``op`` on placed inputs."""
    derivation = derived(
        {name: placement for name, (placement, _) in inputs.items()},
        *(tensor(name, *local) for name, (_, local) in inputs.items()),
        node("y", op, *shape, **args),
    )
    return derivation.at("y").placement


SQUARE = (4, 4)
UNARY: list[tuple[str, Placement | None, Placement | None]] = [
    ("aten.relu.default", REPLICATE, REPLICATE),
    ("aten.relu.default", COLUMNS, COLUMNS),
    ("aten.relu.default", SUM, None),
    ("aten.relu.default", None, None),
    ("aten.neg.default", SUM, SUM),
    ("aten.neg.default", MAX, None),
    ("aten.clone.default", MAX, MAX),
    ("aten.rand_like.default", REPLICATE, None),
    ("aten.bernoulli.default", REPLICATE, None),
    ("vendor.custom.default", REPLICATE, None),
    ("aten.index_add.default", REPLICATE, None),
]


@pytest.mark.parametrize(("op", "given_", "expected"), UNARY)
def test_unary(op: str, given_: Placement | None, expected: Placement | None) -> None:
    assert placed({"x": (given_, SQUARE)}, op, SQUARE, self_="%x") == expected


BINARY: list[tuple[str, Placement | None, Placement | None, Placement | None]] = [
    ("add", SUM, SUM, SUM),
    ("add", SUM, REPLICATE, None),
    ("add", REPLICATE, SUM, None),
    ("add", COLUMNS, COLUMNS, COLUMNS),
    ("add", COLUMNS, ROWS, None),
    ("add", COLUMNS, REPLICATE, None),
    ("add", MAX, MAX, None),
    ("mul", SUM, REPLICATE, SUM),
    ("mul", REPLICATE, SUM, SUM),
    ("mul", SUM, SUM, None),
    ("mul", SUM, COLUMNS, None),
    ("mul", MAX, REPLICATE, None),
    ("div", SUM, REPLICATE, SUM),
    ("div", REPLICATE, SUM, None),
    ("maximum", MAX, MAX, MAX),
    ("maximum", SUM, SUM, None),
    ("mul", None, REPLICATE, None),
]


@pytest.mark.parametrize(("op", "a", "b", "expected"), BINARY)
def test_binary(
    op: str, a: Placement | None, b: Placement | None, expected: Placement | None
) -> None:
    inputs = {"a": (a, SQUARE), "b": (b, SQUARE)}
    assert placed(inputs, f"aten.{op}.Tensor", SQUARE, self_="%a", other="%b") == expected


@pytest.mark.parametrize(
    ("scalar", "expected"), [("add", None), ("sub", None), ("mul", SUM), ("div", SUM)]
)
def test_a_partial_and_a_literal(scalar: str, expected: Placement | None) -> None:
    inputs = {"x": (SUM, SQUARE)}
    assert placed(inputs, f"aten.{scalar}.Tensor", SQUARE, self_="%x", other=2) == expected


LINEAR: list[tuple[Placement | None, Placement | None, Placement | None, Placement | None]] = [
    (REPLICATE, REPLICATE, REPLICATE, REPLICATE),
    (REPLICATE, ROWS, None, COLUMNS),
    (REPLICATE, ROWS, ROWS, COLUMNS),
    (REPLICATE, ROWS, REPLICATE, None),
    (COLUMNS, COLUMNS, None, SUM),
    (COLUMNS, COLUMNS, REPLICATE, None),
    (COLUMNS, COLUMNS, SUM, SUM),
    (COLUMNS, REPLICATE, None, None),
    (ROWS, REPLICATE, REPLICATE, ROWS),
    (ROWS, ROWS, None, None),
    (SUM, REPLICATE, None, SUM),
    (SUM, SUM, None, None),
    (MAX, REPLICATE, None, None),
]


@pytest.mark.parametrize(("x", "weight", "bias", "expected"), LINEAR)
def test_linear(
    x: Placement | None,
    weight: Placement | None,
    bias: Placement | None,
    expected: Placement | None,
) -> None:
    """A row-parallel product is a partial, to which a replicated bias may not be added."""
    inputs = {"x": (x, SQUARE), "w": (weight, SQUARE), "b": (bias, (4,))}
    args = {"input": "%x", "weight": "%w"} | ({"bias": "%b"} if bias is not None else {})
    assert placed(inputs, "aten.linear.default", SQUARE, **args) == expected


REDUCED: list[tuple[str, Placement, Placement | None]] = [
    ("sum", COLUMNS, SUM),
    ("amax", COLUMNS, MAX),
    ("amin", COLUMNS, Partial(op="minimum")),
    ("prod", COLUMNS, Partial(op="product")),
    ("mean", COLUMNS, None),
    ("argmax", COLUMNS, None),
    ("sum", ROWS, ROWS),
    ("argmax", ROWS, ROWS),
    ("sum", SUM, SUM),
    ("mean", SUM, SUM),
    ("amax", SUM, None),
    ("amax", MAX, MAX),
]


@pytest.mark.parametrize(("op", "given_", "expected"), REDUCED)
def test_reductions(op: str, given_: Placement, expected: Placement | None) -> None:
    inputs = {"x": (given_, SQUARE)}
    assert placed(inputs, f"aten.{op}.dim", (4,), self_="%x", dim=1) == expected


COLLECTIVES = {
    "all_reduce": {"reduce_op": "sum"},
    "all_gather_into_tensor": {"group_size": 2},
    "reduce_scatter_tensor": {"reduce_op": "sum", "group_size": 2},
}


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("op", COLLECTIVES)
def test_a_collective_guarantees_its_result_whatever_goes_in(
    op: str, placement: Placement | None
) -> None:
    inputs = {"x": (placement, SQUARE)}
    args = {"input": "%x", "group_name": "0", **COLLECTIVES[op]}
    expected = ROWS if op == "reduce_scatter_tensor" else REPLICATE
    assert placed(inputs, f"_c10d_functional.{op}.default", SQUARE, **args) == expected
    other = args | {"group_name": "another"}
    assert placed(inputs, f"_c10d_functional.{op}.default", SQUARE, **other) is None


DOUBTS: list[tuple[Placement | None, str, str]] = [
    (SUM, "sum", ""),
    (None, "sum", ""),
    (REPLICATE, "max", ""),
    (MAX, "max", ""),
    (REPLICATE, "sum", "counted 2 times"),
    (COLUMNS, "sum", "sharded along axis 1"),
    (MAX, "sum", "partial(maximum)"),
    (SUM, "avg", "partial(sum)"),
]


@pytest.mark.parametrize(("placement", "operator", "says"), DOUBTS)
def test_a_collective_on_what_it_cannot_be_meant_for_is_doubted(
    placement: Placement | None, operator: str, says: str
) -> None:
    derivation = derived(
        {"x": placement},
        tensor("x", 4, 4),
        node(
            "y",
            "_c10d_functional.all_reduce.default",
            4,
            4,
            input="%x",
            reduce_op=operator,
            group_name="0",
        ),
        node("z", "aten.relu.default", 4, 4, self_="%y"),
    )
    found = [doubt.says for doubt in derivation.doubts_before("z")]
    assert found == [] if not says else says in found[0]


def test_a_collective_over_another_number_of_ranks_is_bad_input() -> None:
    gather = node(
        "y",
        "_c10d_functional.all_gather_into_tensor.default",
        12,
        4,
        input="%x",
        group_size=3,
        group_name="0",
    )
    with pytest.raises(BadInput, match="over 3 ranks"):
        derived({"x": ROWS}, tensor("x", 4, 4), gather)


def scatter(dim: int, order: tuple[int, ...] = (0, 1)) -> Placement | None:
    """Placement of a scatter along ``dim`` as functional collectives write it."""
    pieces = [node(f"item{i}", "getitem", 4, 8, self_="%cut", index=i) for i in order]
    return (
        derived(
            {"x": SUM},
            tensor("x", 4, 8),
            node("cut", "aten.chunk.default", self_="%x", chunks=2, dim=dim),
            *pieces,
            node("joined", "aten.cat.default", 8, 4, tensors=[f"%{p.name}" for p in pieces]),
            node(
                "y",
                "_c10d_functional.reduce_scatter_tensor.default",
                4,
                4,
                input="%joined",
                reduce_op="sum",
                group_size=2,
                group_name="0",
            ),
        )
        .at("y")
        .placement
    )


def test_a_scatter_along_another_axis_is_seen_through() -> None:
    assert scatter(1) == COLUMNS
    assert scatter(0) == ROWS
    assert scatter(1, (1, 0)) == ROWS


def test_provenance_names_the_latest_collective() -> None:
    def reduce(name: str, x: str) -> Any:
        return node(
            name,
            "_c10d_functional.all_reduce.default",
            4,
            input=x,
            reduce_op="sum",
            group_name="tp",
        )

    derivation = derived(
        {"x": SUM, "w": REPLICATE},
        tensor("x", 4),
        tensor("w", 4),
        reduce("first", "%x"),
        node("again", "aten.mul.Tensor", 4, self_="%x", other="%first"),
        reduce("second", "%again"),
        node("sum", "aten.add.Tensor", 4, self_="%first", other="%second"),
        node("alone", "aten.relu.default", 4, self_="%w"),
    )
    assert derivation.at("sum").completed == "second"
    assert derivation.at("alone").completed is None
    assert (derivation.at("again").placement, derivation.at("again").by) == (SUM, "x")


def test_what_is_written_in_place_is_unknown_and_so_are_its_views() -> None:
    derivation = derived(
        {"x": REPLICATE},
        tensor("x", 4, 4),
        node("view", "aten.view.default", 16, self_="%x", size=[16]),
        node("copy", "aten.clone.default", 4, 4, self_="%x"),
        node("write", "aten.add_.Tensor", 16, self_="%view", other=1),
        node("other", "aten.mul.Tensor", 4, 4, self_="%copy", other=2),
    )
    assert derivation.at("x").placement is None
    assert derivation.at("write").placement is None
    assert "in place" in derivation.at("x").why


@pytest.mark.parametrize("op", ["vendor.attention_with_output.default", "python.setitem"])
def test_an_operator_that_nothing_is_known_of_may_write_to_its_operands(op: str) -> None:
    derivation = derived(
        {"x": REPLICATE},
        tensor("x", 4, 4),
        node("out", "aten.zeros.default", 4, 4, size=[4, 4]),
        node("call", op, 4, 4, query="%x", output="%out"),
        node("y", "aten.relu.default", 4, 4, self_="%out"),
    )
    assert derivation.at("y").placement is None


def test_a_size_that_may_differ_between_ranks_spreads() -> None:
    def size(dim: int) -> Placement | None:
        derivation = derived(
            {"x": ROWS, "y": REPLICATE},
            tensor("x", 4, 4),
            tensor("y", 8, 4),
            Node(name="n", op="aten.sym_size.int", args={"self": Ref("x"), "dim": dim}),
            Node(name="m", op="python.add", args={"_0": Ref("n"), "_1": 1}),
            node("z", "aten.slice.Tensor", 5, 4, self_="%y", end="%m"),
        )
        return derivation.at("z").placement

    assert size(0) is None
    assert size(1) == REPLICATE


def test_a_reshape_may_ask_for_the_length_of_a_block() -> None:
    derivation = derived(
        {"x": ROWS},
        tensor("x", 4, 4),
        Node(name="n", op="aten.sym_size.int", args={"self": Ref("x"), "dim": 0}),
        node("y", "aten.view.default", 4, 2, 2, self_="%x", size=["%n", 2, 2]),
        node("z", "aten.div.Tensor", 4, 4, self_="%x", other="%n"),
    )
    assert derivation.at("y").placement == ROWS
    assert derivation.at("z").placement is None


def branches(pred: Placement | None, left: str, right: str) -> Placement | None:
    def body(op: str) -> Program:
        return Program(
            nodes=(
                tensor("a", 4),
                node("r", op, 4, self_="%a", other=2),
                node("output", "output", outputs=["%r"]),
            )
        )

    derivation = derived(
        {"p": pred, "x": SUM},
        tensor("p"),
        tensor("x", 4),
        node("both", "hop.cond", pred="%p", true=body(left), false=body(right), operands=["%x"]),
        node("y", "getitem", 4, self_="%both", index=0),
    )
    return derivation.at("y").placement


def test_branches_join() -> None:
    assert branches(REPLICATE, "aten.mul.Tensor", "aten.div.Tensor") == SUM
    assert branches(REPLICATE, "aten.mul.Tensor", "aten.add.Tensor") is None
    assert branches(None, "aten.mul.Tensor", "aten.div.Tensor") is None


def test_join_is_the_least_upper_bound() -> None:
    for a, b in itertools.product(PLACEMENTS, repeat=2):
        joined = join(element(a), element(b), "at")
        assert joined.placement == (a if a == b else None)
        assert join(element(b), element(a), "at").placement == joined.placement


def test_join_keeps_lineage_only_where_both_ways_have_it() -> None:
    done, said = element(REPLICATE, completed="all_reduce"), element(REPLICATE)
    assert join(done, done, "at").completed == "all_reduce"
    assert join(done, said, "at").completed is None
    assert join(said, done, "at").completed is None


def test_ranks_that_take_their_own_block_of_a_replica_shard_it() -> None:
    def program(rank: int) -> Program:
        return Program(
            nodes=(
                tensor("x", 4, 8),
                node("cut", "aten.split.Tensor", self_="%x", split_size=4, dim=1),
                node("left", "getitem", 4, 4, self_="%cut", index=0),
                node("right", "getitem", 4, 4, self_="%cut", index=1),
                node("y", "aten.relu.default", 4, 4, self_="%left" if rank == 0 else "%right"),
            )
        )

    merged = merge([program(0), program(1)])
    assert derived({"x": REPLICATE}, *merged.nodes).at("y").placement == COLUMNS
    assert derived({"x": SUM}, *merged.nodes).at("y").placement is None
    swapped = merge([program(1), program(0)])
    assert derived({"x": REPLICATE}, *swapped.nodes).at("y").placement is None


def test_a_literal_that_differs_is_marked_and_unknown() -> None:
    programs = [
        Program(nodes=(tensor("x", 4), node("y", "aten.add.Tensor", 4, self_="%x", other=rank)))
        for rank in range(2)
    ]
    merged = merge(programs)
    assert merged.by_name["y"].args == {"self": Ref("x"), "other": Varying((0, 1))}
    assert derived({"x": REPLICATE}, *merged.nodes).at("y").placement is None


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """A local shape, another with as many elements, a sharded axis, and a number of ranks."""
    before = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4)))
    left, after = math.prod(before), list[int]()
    while left > 1 or not after:
        size = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        after.append(size)
        left //= size
        assume(len(after) < 6)
    return before, tuple(after), draw(st.integers(0, len(before) - 1)), draw(st.integers(2, 3))


@given(reshapes())
def test_blocks_of_a_reshape_join_to_the_reshape_of_the_whole(
    case: tuple[tuple[int, ...], tuple[int, ...], int, int],
) -> None:
    before, after, axis, ranks = case
    found = reshaped(before, after, axis, None)
    assume(found is not None and found >= 0)
    assert found is not None
    whole = np.arange(math.prod(before) * ranks).reshape(
        [size * (ranks if i == axis else 1) for i, size in enumerate(before)]
    )
    blocks = [block.reshape(after) for block in np.split(whole, ranks, axis)]
    target = [size * (ranks if i == found else 1) for i, size in enumerate(after)]
    assert np.array_equal(np.concatenate(blocks, found), whole.reshape(target))


RESHAPES = [
    ((2, 6, 8), (2, 6, 2, 4), 2, None, 2),
    ((2, 6, 2, 4), (2, 6, 8), 2, None, 2),
    ((2, 6, 4), (2, 6, 1, 4), 2, None, None),
    ((2, 6, 4), (2, 6, 1, 4), 2, 2, 2),
    ((2, 6, 4), (2, 6, 1, 4), 2, 3, 3),
    ((2, 6, 1, 4), (2, 6, 4), 2, None, None),
    ((2, 6, 1, 4), (2, 6, 4), 2, 2, 2),
    ((8, 6), (4, 12), 0, None, 0),
    ((8, 6), (4, 12), 0, 1, None),
    ((2, 6, 4), (12, 4), 1, None, None),
    ((2, 6, 4), (12, 4), 0, None, 0),
    ((2, 6, 4), (12, 4), 2, None, 1),
    ((2, "s0", 4), ("s0", 8), 2, None, None),
    ((2, "s0", 4), (2, "s0", 2, 2), 2, None, 2),
    ((2, "s0", 4), (2, "s0", 2, 2), 0, None, 0),
]


@pytest.mark.parametrize(("before", "after", "axis", "grows", "expected"), RESHAPES)
def test_reshapes(before: Any, after: Any, axis: int, grows: int | None, expected: Any) -> None:
    assert reshaped(before, after, axis, grows) == expected


@pytest.mark.parametrize("op", sorted(RULES))
def test_every_rule_fails_closed_on_an_unknown_operand(op: str) -> None:
    """Whatever the operator: where its tensors are unknown its result is, collectives apart."""
    names = ("self", "input", "other", "mat1", "mat2", "weight", "bias", "indices", "query", "key")
    names += ("value", "condition", "mask", "batch1", "batch2", "index", "vec", "tensor")
    args = {name + "_" * (name == "self"): "%x" for name in names}
    derivation = derived(
        {"x": None},
        tensor("x", 4, 4),
        node("y", f"{op}.default", 4, 4, tensors=["%x", "%x"], group_name="0", dim=0, **args),
    )
    state = derivation.states["y"]
    found = {e.placement for e in (state if isinstance(state, tuple) else (state,))}
    if RULES[op].collective:
        assert found != {None}
    elif op.endswith("_like"):
        assert found == {REPLICATE}, "a constant, whatever the operand is"
    else:
        assert found == {None}
