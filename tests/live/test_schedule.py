"""Schedules: the same byte ranges and the same faults as the executable reference finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembridge.live.schedule import Held, Transfer, schedule
from sembridge.obligations import resolve_valid
from sembridge.plan import VALUE, AllGather, Broadcast, Part, Project, Reduce, Send
from sembridge.reference import Fault, Machine, revealing_inputs
from sembridge.surfaces import Tokens
from tests.core.build import contract, plan
from tests.strategies import plans, valid_contracts


@given(st.data())
def test_faults_are_those_of_the_reference(data: st.DataObject):
    made = data.draw(valid_contracts())
    ob = resolve_valid(made)
    drawn = data.draw(plans(made))
    found = schedule(ob, drawn)
    machine = Machine(ob, revealing_inputs(ob))
    for index, op in enumerate(drawn.ops):
        try:
            machine.run(op)
        except Fault:
            assert found.fault is not None and found.fault.message.startswith(f"op {index}: ")
            return
    assert found.fault is None
    assert len(found.steps) == len(drawn.ops)
    for (x, surface), held in found.holds.items():
        there = machine.memory[x, surface]
        assert held.whole == (there.arrived is None)
        assert held.size == there.data.nbytes


def test_slices_are_byte_ranges():
    ob = resolve_valid(contract(shape=(10,), dtype="bfloat16"))
    sends = [Send(src="p0", dst="c0", part=Part(index=i, of=4)) for i in range(4)]
    steps = schedule(ob, plan(*sends)).steps
    ranges = [(s.start, s.stop, s.fresh) for s in steps if isinstance(s, Transfer)]
    assert ranges == [(0, 6, True), (6, 12, False), (12, 16, False), (16, 20, False)]
    assert schedule(ob, plan(*sends)).holds["c0", VALUE] == Held(size=20, ranges=((0, 20),))
    apart = schedule(ob, plan(sends[0], sends[2])).holds["c0", VALUE]
    assert apart.ranges == ((0, 6), (12, 16)) and not apart.whole


FAULTS = {
    "no endpoint x": Send(src="x", dst="c0"),
    "no endpoint y": Project(projection="argmax", at="y"),
    "no carrier inside domain h": Send(src="p0", dst="p1"),
    "c0 has no value": Send(src="c0", dst="p0"),
    "p0 has no tokens": Send(src="p0", dst="c0", surface="tokens"),
    "no communicator spans": Broadcast(src="p0", dsts=("c0",)),
    "an all_gather of nobody": AllGather(members=()),
    "no slice 2 of 2": Send(src="p0", dst="c0", part=Part(index=2, of=2)),
    "no projection 'choose'": Project(projection="choose", at="p0"),
    "a reduction of nothing": Reduce(operator="sum", sources=(), targets=("p0",)),
    "to nobody": Reduce(operator="sum", sources=("p0",), targets=()),
    "no native 'mean'": Reduce(operator="mean", sources=("p0",), targets=("p0",)),
    "no combine 'sum' of tokens": Reduce(
        operator="sum", sources=("p0",), targets=("p0",), surface="tokens"
    ),
}


@pytest.mark.parametrize("said", FAULTS)
def test_ops_that_cannot_be_carried_out(said: str):
    ob = resolve_valid(contract(surface=Tokens()))
    before = [Project(projection="argmax", at="p0")] if "combine" in said else []
    fault = schedule(ob, plan(*before, FAULTS[said])).fault
    assert fault is not None
    assert said in fault.message
    assert fault.message.startswith(f"op {len(before)}: ")
    assert fault.exit_code == 4


def test_nothing_after_a_fault_is_scheduled():
    ob = resolve_valid(contract())
    bad = Send(src="p0", dst="p1")
    found = schedule(ob, plan(Send(src="p0", dst="c0"), bad, Send(src="p0", dst="c1")))
    assert len(found.steps) == 1 and found.fault is not None
