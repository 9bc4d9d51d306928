"""The executable reference: kernels, revealing inputs, and what it sees by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembridge.errors import BadInput
from sembridge.kernels import argmax, numpy_dtype
from sembridge.layout import Shard, slice_bounds
from sembridge.lowering import REFERENCE, lower
from sembridge.obligations import resolve_valid
from sembridge.plan import AllGather, Broadcast, Part, Project, Reduce, Send
from sembridge.reference import (
    OPERATORS,
    Machine,
    Outcome,
    execute,
    expected_value,
    result_of,
    revealing_inputs,
)
from sembridge.surfaces import Tokens
from tests.core.build import contract, plan
from tests.strategies import valid_contracts


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_argmax_ties_nans_and_masks(dtype):
    nan, inf = float("nan"), float("inf")
    rows = np.array(
        [
            [1, 3, 3, 2],
            [-inf, -inf, -inf, -inf],
            [1, nan, inf, nan],
            [-inf, -2, -inf, -2],
            [0.0, -0.0, 0.0, 0.0],
        ]
    ).astype(numpy_dtype(dtype))
    assert argmax(rows).tolist() == [1, 0, 1, 1, 0]


@given(st.integers(0, 50), st.integers(1, 12))
def test_slices_are_numpys(elements, of):
    parts = np.array_split(np.arange(elements), of)
    bounds = [slice_bounds(elements, i, of) for i in range(of)]
    assert [stop - start for start, stop in bounds] == [len(p) for p in parts]
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])]


@given(valid_contracts(producers=16))
def test_inputs_reveal_whom_a_value_comes_from(edge):
    ob = resolve_valid(edge)
    if ob.operator == "product":
        return
    inputs = revealing_inputs(ob)
    for p in ob.producers:
        for q in ob.producers:
            related = ob.replicate or q in ob.members(p)
            if related:
                assert np.array_equal(inputs[p], inputs[q])
            elif ob.projected is None:
                assert (inputs[p] != inputs[q]).all()


def test_projected_inputs_have_ties_and_bait_in_the_padding():
    ob = resolve_valid(contract(shape=(3, 8), valid_last=6, surface=Tokens()))
    rows = revealing_inputs(ob)["p0"].reshape(3, 8)
    valid = rows[:, :6]
    assert ((valid == valid.max(axis=1, keepdims=True)).sum(axis=1) >= 2).all()
    assert (rows[:, 6:] > valid.max()).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint8"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_reductions_are_exact_in_any_order(dtype, operator):
    edge = contract(4, reduce=operator, dtype=dtype, shape=(40,))
    ob = resolve_valid(edge)
    inputs = revealing_inputs(ob)
    results = []
    for order in (ob.producers, ob.producers[::-1]):
        machine = Machine(ob, inputs)
        machine.run(Reduce(operator=operator, sources=tuple(order), targets=("p0",)))
        results.append(result_of(machine, "p0", "value"))
    assert results[0].dtype == numpy_dtype(dtype)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], expected_value(ob, inputs, "c0"))


@given(valid_contracts())
def test_the_conservative_plan_gives_the_expected_observation(edge):
    ob = resolve_valid(edge)
    inputs = revealing_inputs(ob)
    machine = Machine(ob, inputs)
    for op in lower(edge, REFERENCE).ops:
        machine.run(op)
    for c in ob.demanded:
        if "value" in ob.observed:
            got = result_of(machine, c, "value")
            assert got.tobytes() == expected_value(ob, inputs, c).tobytes()


FAULTS = [
    Send(src="c0", dst="p0"),
    Send(src="p0", dst="p1"),
    Send(src="p0", dst="c9"),
    Send(src="p0", dst="c0", surface="tokens"),
    Send(src="p0", dst="c0", part=Part(index=2, of=2)),
    Broadcast(src="p0", dsts=("c0",)),
    Project(projection="argmin", at="p0"),
    Project(projection="argmax", at="c0"),
    Reduce(operator="mean", sources=("p0", "p1"), targets=("p0",)),
    Reduce(operator="sum", sources=("p0", "c0"), targets=("p0",)),
    Reduce(operator="sum", sources=(), targets=("p0",)),
    AllGather(members=("c0", "c1")),
    AllGather(members=()),
]


@pytest.mark.parametrize("op", FAULTS)
def test_what_cannot_be_carried_out_is_a_fault(op):
    execution = execute(contract(surface=Tokens()), plan(op))
    assert execution.outcome is Outcome.FAULT
    assert execution.op == 0
    assert execution.reason


def test_a_difference_names_consumer_surface_and_both_values():
    edge = contract(placement=Shard(dim=0), shape=(4,))
    swapped = plan(Send(src="p1", dst="c0"), Send(src="p0", dst="c1"))
    found = execute(edge, swapped).differences
    assert {(d.endpoint, d.what) for d in found} >= {("c0", "value"), ("c1", "provenance")}
    value = next(d for d in found if d.what == "value")
    assert value.observed != value.expected
    assert value.observed.startswith("[0] = ")


def test_what_would_not_fit_is_refused_before_it_is_allocated():
    with pytest.raises(BadInput, match=r"\$\.value\.shape"):
        execute(contract(shape=(2**20, 2**20)), plan())
