"""Plans on real ranks: every backend that is here does what the schedule says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembridge.errors import BadInput
from sembridge.footprint import footprint_of
from sembridge.live.backends import BACKENDS, backend
from sembridge.live.executor import NO_TAG, lanes_of
from sembridge.live.faults import LiveError, PlanFault
from sembridge.live.judge import as_expected, as_tensor, live_outcome, runnable, world_for
from sembridge.live.local import LocalWorld
from sembridge.lowering import POLICIES, lower
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import AllGather, Broadcast, Part, Plan, Project, Reduce, Send, Tag
from sembridge.reference import Outcome, execute_valid, revealing_inputs
from sembridge.surfaces import Tokens, TopLogprobs
from sembridge.wire import framed
from tests.core.build import contract, plan
from tests.strategies import plans, valid_contracts

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `live` has it")

ABSENT = {name: reason for name, b in BACKENDS.items() if (reason := b.absent()) is not None}
EVERY = [
    pytest.param(
        name,
        marks=[
            getattr(pytest.mark, b.stack),
            pytest.mark.skipif(name in ABSENT, reason=f"{name}: {ABSENT.get(name)}"),
        ],
    )
    for name, b in BACKENDS.items()
]


def test_gloo_is_here_and_the_others_say_why_not():
    assert not {"gloo", "gloo-staged"} & ABSENT.keys()
    for name in ABSENT:
        with pytest.raises(BadInput, match=f"backend {name} cannot run here: "):
            backend(name)
    with pytest.raises(BadInput, match="no backend 'mpi'; there are gloo"):
        backend("mpi")


def run(ob: Obligations, chosen: Plan, name: str) -> bool:
    """Whether every demanded consumer observes what it should."""
    inputs = revealing_inputs(ob)
    world = world_for(ob, name)
    values = {x: as_tensor(ob, flat, world.ranks[x].device) for x, flat in inputs.items()}
    seen = world.run(ob, chosen, values)
    return all(as_expected(ob, inputs, c, seen[c]) for c in ob.demanded)


CONTRACTS = {
    "slices": contract(3, shape=(7,), dtype="bfloat16"),
    "representative": contract(4, classes=(("p0", "p1", "p2", "p3"),), dtype="float16"),
    "two domains": contract(4, tails="tuvv", classes=(("p0", "p1", "p2", "p3"),)),
    "sum": contract(4, reduce="sum", shape=(5, 3)),
    "bfloat16 sum": contract(2, reduce="sum", dtype="bfloat16"),
    "product": contract(2, reduce="product", dtype="int32"),
    "minimum": contract(3, reduce="minimum", dtype="int8"),
    "maximum": contract(2, reduce="maximum", dtype="float64"),
    "integers that gloo cannot sum": contract(3, reduce="sum", dtype="int16"),
    "nothing": contract(2, shape=(0, 4), reduce="sum"),
    "scalars": contract(2, shape=()),
    "tokens": contract(3, surface=Tokens(), shape=(4, 9)),
    "padded tokens": contract(2, surface=Tokens(), shape=(4, 9), valid_last=5),
    "owner": contract(4, surface=Tokens(), owner=("p2",), shape=(2, 9)),
    "partial logits": contract(2, surface=Tokens(), reduce="sum", shape=(2, 9)),
    "top log-probabilities": contract(2, surface=TopLogprobs(k=2), owner=("p0",), shape=(2, 9)),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("what", CONTRACTS)
def test_conformance(name: str, what: str):
    ob = resolve_valid(CONTRACTS[what])
    for policy in POLICIES.values():
        assert run(ob, lower(ob.contract, policy), name), policy.name


@pytest.mark.parametrize("name", EVERY)
def test_wire_accounting_is_what_was_sent(name: str):
    ob = resolve_valid(contract(4, surface=Tokens(), shape=(2, 101)))
    for policy in POLICIES.values():
        chosen = lower(ob.contract, policy)
        with LocalWorld(ob.domain_of, backend_name=name) as world:
            values = {x: as_tensor(ob, v) for x, v in revealing_inputs(ob).items()}
            for edge in (0, 5):
                world.run(ob, chosen, values, edge=edge)
            wanted = framed(ob, chosen.ops)
            for edge in (0, 5):
                sent = [r.sent[edge] for r in world.ranks.values() if edge in r.sent]
                assert (
                    sum(f.frames for f in sent),
                    sum(f.payload for f in sent),
                    sum(f.framed for f in sent),
                ) == (wanted.frames, wanted.payload, wanted.framed)
            bytes_out = [
                c.traffic.bytes_sent for r in world.ranks.values() for c in r.peers.values()
            ]
            assert sum(bytes_out) == 2 * wanted.framed
            assert wanted.payload == footprint_of(ob, chosen.ops).cross_bytes


@given(st.data())
@settings(max_examples=40)
def test_any_plan_runs_as_the_reference_runs_it(data: st.DataObject):
    made = data.draw(valid_contracts())
    ob = resolve_valid(made)
    if not runnable(ob):
        return
    drawn = data.draw(plans(made))
    wanted = execute_valid(ob, drawn, variants=1).outcome
    # The reference looks at sources and issuers too, which no wire carries.
    got = live_outcome(ob, drawn)
    assert got == wanted or (wanted, got) == (Outcome.DIFFERS, Outcome.EQUAL)


def test_reductions_may_end_elsewhere():
    ob = resolve_valid(contract(3, reduce="sum", dtype="float32"))
    chosen = plan(
        Reduce(operator="sum", sources=("p0", "p1", "p2"), targets=("p1",)),
        *[Send(src="p1", dst=f"c{i}") for i in range(3)],
    )
    assert run(ob, chosen, "gloo")
    # Two of three are not all: the sum is another, and every rank gets through it.
    less = plan(Reduce(operator="sum", sources=("p0", "p1"), targets=("p2",)), *chosen.ops[1:])
    assert not run(ob, less, "gloo")


def test_a_source_that_is_named_twice_counts_twice():
    ob = resolve_valid(contract(2, reduce="sum", dtype="float32", shape=(2,)))
    twice = plan(
        Reduce(operator="sum", sources=("p0", "p1", "p1"), targets=("p0",)),
        Send(src="p0", dst="c0"),
    )
    with LocalWorld(ob.domain_of) as world:
        seen = world.run(ob, twice, {"p0": torch.ones(2), "p1": torch.full((2,), 10.0)})
    assert seen["c0"].value.tolist() == [21.0, 21.0]


def test_slices_join_and_are_passed_on():
    ob = resolve_valid(contract(2, tails="tttu", sources="0011", shape=(9,)))
    chosen = plan(
        Send(src="p0", dst="c0", part=Part(index=0, of=3)),
        Send(src="p1", dst="c1", part=Part(index=1, of=3)),
        Send(src="p1", dst="c1", part=Part(index=2, of=3)),
        Broadcast(src="c1", dsts=("c2",)),
        Send(src="c2", dst="c3", part=Part(index=2, of=3)),
        AllGather(members=("c0", "c2", "c1")),
        Send(src="c0", dst="c3", part=Part(index=0, of=3)),
        Send(src="c1", dst="c3", part=Part(index=1, of=3)),
    )
    assert run(ob, chosen, "gloo")


def test_a_producers_own_value_stays_its_own():
    ob = resolve_valid(contract(2, shape=(4,)))
    back = plan(
        Send(src="p0", dst="c0"),
        Send(src="c0", dst="p1", part=Part(index=0, of=2)),
        Send(src="p1", dst="c1"),
    )
    values = {"p0": torch.full((4,), 1.0), "p1": torch.full((4,), 2.0)}
    with LocalWorld(ob.domain_of) as world:
        seen = world.run(ob, back, values)
    assert seen["c1"].value.tolist() == [1.0, 1.0, 2.0, 2.0]
    assert values["p1"].tolist() == [2.0] * 4


def test_every_rank_comes_to_the_same_fault():
    ob = resolve_valid(contract(2))
    bad = plan(Send(src="p0", dst="c0"), Broadcast(src="p0", dsts=("c1",)))
    values = {x: as_tensor(ob, v) for x, v in revealing_inputs(ob).items()}
    with LocalWorld(ob.domain_of) as world:
        for _ in range(2):  # a fault leaves nothing behind: the world goes on
            with pytest.raises(PlanFault, match="op 1: no communicator spans"):
                world.run(ob, bad, values)
        assert not world.broken
        assert world.run(ob, lower(ob.contract), values)["c1"].value is not None


def test_a_stale_tag_is_never_delivered():
    ob = resolve_valid(contract(1, shape=(3,)))
    chosen = lower(ob.contract)
    now = Tag(request="r", token=7, microbatch=0, epoch=1)
    with LocalWorld(ob.domain_of, deadline_s=0.5) as world:
        p0, c0 = world.ranks["p0"], world.ranks["c0"]
        old = Tag(request="r", token=6, microbatch=0, epoch=1)
        p0.run(ob, chosen, tag=old, value=torch.zeros(3))
        p0.run(ob, chosen, tag=now, value=torch.ones(3))
        assert c0.run(ob, chosen, tag=now)["c0"].value.tolist() == [1, 1, 1]
        assert c0.peers["p0"].traffic.stale == 1
        p0.run(ob, chosen, tag=now, value=torch.ones(3))
        with pytest.raises(LiveError, match=r"c0 <- p0, edge 0, r/8/0/1: .*arrived in time"):
            c0.run(ob, chosen, tag=Tag(request="r", token=8, microbatch=0, epoch=1))
        assert c0.peers["p0"].traffic.stale == 2


@pytest.mark.parametrize(
    "value", [None, torch.zeros(3), torch.zeros(2, 6, dtype=torch.float64), torch.zeros(6, 2)]
)
def test_a_value_of_another_shape_or_dtype_is_refused(value: object):
    ob = resolve_valid(contract(2))
    with (
        LocalWorld(ob.domain_of) as world,
        pytest.raises(BadInput, match=r"p0: a value of \(2, 6\)"),
    ):
        world.ranks["p0"].run(ob, lower(ob.contract), value=value)


def test_an_absent_peer_is_an_error_in_time():
    ob = resolve_valid(contract(2, classes=(("p0", "p1"),)))
    values = {x: as_tensor(ob, v) for x, v in revealing_inputs(ob).items()}
    with LocalWorld(ob.domain_of, deadline_s=0.5) as world:
        with pytest.raises(LiveError, match="c0 <- p0"):
            world.ranks["c0"].run(ob, lower(ob.contract))
        world.broken = True
        with pytest.raises(LiveError):
            world.run(ob, lower(ob.contract), values)


def test_lanes_are_counted_in_each_domain():
    ob = resolve_valid(contract(2, tails="tut"))
    assert lanes_of(ob) == {"p0": "h/0", "p1": "h/1", "c0": "t/0", "c1": "u/0", "c2": "t/1"}


def test_tags_and_tensors_of_untagged_contracts():
    ob = resolve_valid(contract(1, shape=(2,)))
    assert run(ob, lower(ob.contract), "gloo")
    assert NO_TAG.request == ""


def test_projection_stays_local():
    ob = resolve_valid(contract(1, surface=Tokens(), shape=(1, 4)))
    late = plan(Send(src="p0", dst="c0"), Project(projection="argmax", at="c0"))
    with LocalWorld(ob.domain_of) as world:
        seen = world.run(ob, late, {"p0": torch.tensor([[0.0, 3.0, 3.0, 1.0]])})
    assert seen["c0"].result.tolist() == [1]
    assert seen["p0"].result is None
