"""Wire accounting, coalescing and the fabric-aware selector."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.real_edges import headline_edges
from experiments.wire_totals import steps, total
from sembridge.check import check
from sembridge.coalesce import graph_cost
from sembridge.errors import BadInput, ContractRejected, PlanRejected
from sembridge.layout import Partial
from sembridge.lowering import REFERENCE, lower
from sembridge.obligations import resolve_valid
from sembridge.plan import Broadcast, Send
from sembridge.selector import Fabric, LocalCost, better, select
from sembridge.surfaces import Logprobs, Tokens
from sembridge.wire import Framed, framed
from tests.core.build import contract, plan
from tests.strategies import valid_contracts


def test_the_papers_printed_totals():
    assert total([4], Tokens(), policy=REFERENCE) == Framed(
        frames=4, payload=3201024, framed=3201544
    )
    assert total([4], Tokens()) == Framed(frames=4, payload=64, framed=256)
    assert total(steps(17, 9), Logprobs()).framed == 13_609_032
    assert total(steps(17, 5), Tokens()).framed == 1_232
    assert total(steps(17, 5), Tokens(), owner=3).framed == 308


@given(st.integers(1, 40), st.integers(1, 40))
def test_totals_do_not_depend_on_how_steps_are_batched(rows, count):
    split = steps(rows + count, count)
    assert sum(split) == rows + count
    assert len(split) == count
    assert total(split, Tokens()) == total(sorted(split), Tokens())


@given(valid_contracts())
def test_framed_traffic_agrees_with_the_footprint(edge):
    ob, ops = resolve_valid(edge), lower(edge).ops
    traffic, footprint = framed(ob, ops), check(edge, lower(edge)).footprint
    assert (traffic.payload, traffic.frames) == (footprint.cross_bytes, footprint.cross_startups)
    sliced = sum(isinstance(op, Send) and op.part is not None for op in ops)
    assert traffic.framed == traffic.payload + 48 * traffic.frames + 82 * sliced


def hidden_and_residual():
    edges = [e.contract() for name, e in headline_edges().items() if "qwen3-14b" in name]
    return [(c, lower(c)) for c in edges]


def test_payloads_that_share_a_route_leave_together():
    cost = graph_cost(hidden_and_residual())
    assert [f.cross_startups for f in cost.footprints.values()] == [1, 1, 1]
    assert cost.cross_startups == 2
    together = max(cost.packed, key=lambda p: p.payload_bytes if p.crosses else 0)
    assert {name for name, _ in together.constituents} == {
        "qwen3-14b.hidden",
        "qwen3-14b.residual",
    }
    assert together.payload_bytes == 2 * 40960


def test_packing_needs_one_group_and_one_route():
    (edge, lowered), *_ = hidden_and_residual()
    apart = msgspec.structs.replace(edge, name="other", framing_group="other")
    other = msgspec.structs.replace(lowered, contract="other")
    assert graph_cost([(edge, lowered), (apart, other)]).cross_startups == 2
    two = contract(classes=(("p0", "p1"),), tails="tt", name="two")
    sends = plan(Send(src="p0", dst="c0"), Send(src="p0", dst="c1"), name="two")
    assert graph_cost([(two, sends)]).cross_startups == 2


def test_every_constituent_is_checked_by_itself():
    good = hidden_and_residual()
    edge = contract(owner=("p1",))
    with pytest.raises(PlanRejected, match="authority"):
        graph_cost(
            [*good, (edge, plan(Send(src="p0", dst="c0"), Broadcast(src="c0", dsts=("c1",))))]
        )
    with pytest.raises(ContractRejected):
        graph_cost([*good, (contract(placement=Partial(op="sum")), plan())])


EDGE = contract(4, shape=(4, 1000), surface=Tokens())


def fabric(alpha=0.0, beta=1e9, **local):
    return Fabric(beta_bytes_per_s=beta, alpha_s=alpha, local=LocalCost(**local))


def test_the_selector_prefers_the_projection_on_a_slow_link():
    choice = select(resolve_valid(EDGE), fabric(alpha=1e-4, beta=1e8))
    assert choice.chosen.name == "semantic"
    assert "over project-at-consumer" in choice.why


def test_expensive_projections_tip_the_balance():
    ob = resolve_valid(
        contract(4, shape=(4, 1000), surface=Tokens(), classes=(("p0", "p1", "p2", "p3"),))
    )
    near = fabric(beta=1e15)
    stated = msgspec.structs.replace(near, plan_local_s={"semantic": 1.0})
    assert select(ob, near).chosen.name == "semantic"
    assert select(ob, stated).chosen.name != "semantic"


@given(valid_contracts(), st.floats(0, 1), st.floats(1, 1e12), st.floats(0, 1), st.floats(0, 1))
def test_the_chosen_plan_is_legal_and_none_is_better(edge, alpha, beta, projection, collective):
    link = fabric(alpha, beta, projection_s=projection, collective_s=collective)
    choice = select(resolve_valid(edge), link)
    assert choice.chosen in choice.candidates
    for candidate in choice.candidates:
        assert check(edge, candidate.plan).verdict == "legal"
        slack = 1e-9 * max(1.0, candidate.total_s)
        assert not better(link, candidate, choice.chosen) or (
            abs(candidate.total_s - choice.chosen.total_s) <= slack
        )
    assert list(choice.candidates) == sorted(choice.candidates, key=lambda c: c.total_s)


def test_lower_with_a_fabric_file(sembridge, tmp_path):
    path, edge = tmp_path / "fabric.json", tmp_path / "edge.json"
    edge.write_bytes(msgspec.json.encode(EDGE))
    path.write_text('{"format": "sembridge.fabric/1", "beta_bytes_per_s": 1e8, "alpha_s": 1e-4}')
    ran = sembridge("lower", edge, "--fabric", path)
    assert ran.code == 0
    assert json.loads(ran.out)["ops"][0]["op"] == "project"
    assert ran.err.startswith("chosen semantic")
    for bad in ('"beta_bytes_per_s": 0', '"beta_bytes_per_s": 1, "gamma": 2', '"alpha": 1'):
        path.write_text(f'{{"format": "sembridge.fabric/1", "alpha_s": 0, {bad}}}')
        assert sembridge("lower", edge, "--fabric", path).code == 2
    with pytest.raises(BadInput, match="no candidate plan"):
        select(resolve_valid(EDGE), Fabric(beta_bytes_per_s=1, alpha_s=0, plan_local_s={"x": 1}))
