"""Exchanges between live ranks: traffic is the plans', tokens do not depend on the plan."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import boundary, exchange, selector
from experiments.exchange import Orders, launch_orders, step_edges, traffic
from experiments.pairs import C1, C5, L0, P0, R0, S1, Ask
from experiments.registry import Settings
from experiments.selector import BURSTS, calibrate, candidate, local_seconds, verdict
from sembridge.models import read_model
from sembridge.obligations import resolve_valid
from sembridge.selector import Fabric, better
from sembridge.wire import framed

ARMS = {"R0": R0, "P0": P0, "S1": S1, "L0": L0, "C1": C1, "C5": C5}
STEPS = 2
ASK = Ask(model="qwen3", tp=2, arm=P0, concurrency=3, rate_bit_s=1e10, rtt_s=0.0)
SMALL = read_model(
    {
        "model_type": "qwen3",
        "hidden_size": 24,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 101,
        "intermediate_size": 32,
        "torch_dtype": "bfloat16",
    },
    name="small",
)


def edges(arm):
    return tuple(step_edges(msgspec.structs.replace(ASK, arm=arm), SMALL))


@pytest.fixture(scope="module")
def ranks():
    pytest.importorskip("torch", reason="torch is not installed: the extra `live` has it")
    orders = Orders(
        arms=tuple(edges(arm) for arm in ARMS.values()),
        blocks=tuple(range(len(ARMS))),
        steps=STEPS,
        bursts=((4, 1), (1000, 2)),
    )
    return launch_orders(orders, ASK)


@pytest.mark.parametrize("name", ARMS)
def test_what_is_sent_is_what_the_plans_say(ranks, name):
    first = 3 * list(ARMS).index(name)
    for n, (contract, plan) in enumerate(edges(ARMS[name])):
        told = framed(resolve_valid(contract), plan.ops)
        sent = traffic(ranks, (first + n,))
        assert sent.frames == STEPS * told.frames
        assert sent.payload_bytes == STEPS * told.payload
        assert sent.framed_bytes == STEPS * told.framed


def test_every_head_lane_observes_the_same_tokens_under_every_plan(ranks):
    heads = [rank for name, rank in ranks.items() if name.startswith(exchange.HEAD)]
    seen = {str(tokens) for rank in heads for tokens in rank["tokens"]}
    assert len(heads) == ASK.tp
    assert len(seen) == 1
    rows = heads[0]["tokens"][0]
    assert len(rows) == ASK.concurrency
    assert all(len(row) == STEPS and row[0] < 101 for row in rows)


def test_times_are_taken_of_every_block_and_burst(ranks):
    lead = ranks[f"{exchange.HEAD}/0"]
    assert [len(block) for block in lead["seconds"]] == [STEPS] * len(ARMS)
    assert all(len(times) >= 20 for times in lead["bursts"])
    assert local_seconds(ranks, 1) > 0


def test_arms_move_what_they_are_about():
    prints = {name: [len(plan.ops) for _, plan in edges(arm)] for name, arm in ARMS.items()}
    plans = {name: [plan for _, plan in edges(arm)] for name, arm in ARMS.items()}
    assert plans["R0"][:2] == plans["P0"][:2] and plans["R0"][2] != plans["P0"][2]
    assert plans["L0"][2] == plans["P0"][2] and plans["L0"][0] != plans["P0"][0]
    assert plans["C1"][2] == plans["P0"][2]
    assert plans["C5"][2].ops == plans["S1"][2].ops
    assert prints["S1"][2] < prints["P0"][2]


@given(alpha=st.floats(1e-6, 1e-2), rate=st.floats(1e6, 1e10), constant=st.floats(0, 1e-2))
def test_calibration_recovers_what_made_the_times(alpha, rate, constant):
    times = {
        (size, count): [constant + alpha * count + count * size / rate] * 5
        for size, count in BURSTS
    }
    found = calibrate(times)
    assert found.alpha_s == pytest.approx(alpha, rel=1e-3, abs=1e-9)
    assert found.beta_bytes_per_s == pytest.approx(rate, rel=1e-3)


@given(alpha=st.floats(0, 1e-2), rate=st.floats(1e6, 1e10), extra=st.floats(0, 1.0))
def test_projection_is_chosen_exactly_where_it_saves_more_than_it_costs(alpha, rate, extra):
    fabric = Fabric(alpha_s=alpha, beta_bytes_per_s=rate)
    reference = candidate(fabric, "reference", edges(R0), 0.0)
    specialized = candidate(fabric, "specialized", edges(P0), extra)
    r, s = reference.footprint, specialized.footprint
    saved = (r.cross_bytes - s.cross_bytes) / rate
    saved += alpha * (r.cross_startups - s.cross_startups)
    assert better(fabric, specialized, reference) == (saved > extra)
    assert r.cross_bytes > s.cross_bytes and r.cross_startups == s.cross_startups


def test_an_interval_across_zero_prefers_neither_plan():
    assert [verdict(1, 2), verdict(-2, -1), verdict(-1, 1)] == [
        "specialized",
        "reference",
        "neither",
    ]


def test_without_torch_live_experiments_are_not_run(monkeypatch):
    monkeypatch.setattr(boundary, "live_installed", lambda: False)
    monkeypatch.setattr(selector, "live_installed", lambda: False)
    for run in (boundary.link, boundary.figure4, boundary.table3, selector.selector):
        found = run(Settings())
        assert found.not_run and not found.measured and not found.volatile.measured
