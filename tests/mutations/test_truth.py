"""The judges that are not the checker, on plans whose wrongs are known."""

from __future__ import annotations

import pytest

from mutations.truth import NOT_RUN, judge, redelivers
from sembridge.layout import Shard
from sembridge.obligations import resolve, resolve_valid
from sembridge.plan import AllGather, Broadcast, Part, Project, Reduce, Send
from sembridge.surfaces import Tokens
from tests.core.build import contract, plan
from tests.mutations.samples import some_subjects

SHARD = contract(placement=Shard(dim=0))
HOME = contract(tails="tt", shape=(6,))
LANES = (Send(src="p0", dst="c0"), Send(src="p1", dst="c1"))
BOTH = ("p0", "p1")


def half(j, src="p0", dst="c0", of=2):
    return Send(src=src, dst=dst, part=Part(index=j, of=of))


def reduce(*targets):
    return Reduce(operator="sum", sources=BOTH, targets=targets)


TOKEN = Send(src="p0", dst="c0", surface="tokens")
PROJECT = Project(projection="argmax", at="p0")
ONCE = {
    "lanes": (SHARD, LANES),
    "two halves": (HOME, (half(0), half(1))),
    "halves and thirds that tile": (HOME, (half(0), half(3, of=6), half(2, of=3))),
    "gather": (HOME, (half(0), half(1, dst="c1"), AllGather(members=("c0", "c1")))),
    "reduce": (contract(reduce="sum"), (reduce("p0", "p1"), LANES[0])),
    "value and tokens": (contract(surface=Tokens()), (PROJECT, TOKEN, LANES[0])),
}
TWICE = {
    "send again": (SHARD, (*LANES, LANES[0])),
    "another source": (SHARD, (*LANES, Send(src="p0", dst="c1"))),
    "whole over half": (HOME, (half(0), LANES[0])),
    "half over whole": (HOME, (LANES[0], half(0))),
    "overlap": (HOME, (half(0), half(1, of=3))),
    "empty over slice": (HOME, (half(0), half(6, of=7))),
    "root among receivers": (HOME, (LANES[0], Broadcast(src="c0", dsts=("c0", "c1")))),
    "receiver twice": (HOME, (LANES[0], Broadcast(src="c0", dsts=("c1", "c1")))),
    "reduce twice": (contract(reduce="sum"), (reduce("p0"), reduce("p0"))),
    "target twice": (contract(reduce="sum"), (reduce("p0", "p0"),)),
    "reduce over complete": (SHARD, (reduce("p0"),)),
    "project twice": (contract(surface=Tokens()), (PROJECT, PROJECT)),
    "two partials": (contract(reduce="sum"), (LANES[0], Send(src="p1", dst="c0"))),
}


@pytest.mark.parametrize("name", ONCE)
def test_delivered_once(name):
    edge, ops = ONCE[name]
    assert not redelivers(resolve(edge), ops)


@pytest.mark.parametrize("name", TWICE)
def test_delivered_twice(name):
    edge, ops = TWICE[name]
    assert redelivers(resolve(edge), ops)


def test_unmutated_plans_deliver_once_and_each_repeated_op_again():
    for subject in some_subjects():
        ob, ops = resolve(subject.contract), subject.plan.ops
        assert not redelivers(ob, ops)
        for i, op in enumerate(ops):
            if not isinstance(op, AllGather):
                assert redelivers(ob, (*ops[: i + 1], op, *ops[i + 1 :])), (subject.name, i)


def test_each_judge_says_what_it_alone_can():
    ob = resolve_valid(SHARD)

    def wrong(*ops, **named):
        return judge(ob, plan(*ops, **named), rejected=False, prove=False).wrong

    assert wrong(*LANES) == ()
    assert wrong(*LANES, tag=None) == ("identity",)
    assert wrong(*LANES, name="another") == ("identity",)
    assert wrong(*LANES, LANES[0]) == ("redelivery",)
    assert wrong(LANES[0]) == ("differs",)
    assert wrong(Broadcast(src="p0", dsts=("c0",)), LANES[1]) == ("fault",)
    assert wrong(LANES[0], tag=None) == ("identity", "differs")


def test_a_judge_that_cannot_run_says_nothing():
    edge = contract(placement=Shard(dim=0), shape=(2**40,))
    truth = judge(resolve(edge), plan(*LANES), rejected=False, prove=False)
    assert (truth.execution, truth.proof, truth.wrong) == (NOT_RUN, NOT_RUN, ())
