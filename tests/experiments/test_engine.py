"""The engine's adapter: what it asks of the ranks, and what it makes of what they say."""

from __future__ import annotations

import pytest

from experiments import boundary
from experiments import engine as engines
from experiments.boundary import figure2, timer_effect
from experiments.documents import document
from experiments.ledger import Standing
from experiments.pairs import L0, R0, Ask, Run, Traffic, measure, versus
from experiments.registry import Settings
from experiments.statistics import PAIRS
from experiments.timers import Clocks, components
from sembridge.lowering import POLICIES, lower_valid
from sembridge.models import Deployment, model_edges
from sembridge.obligations import resolve_valid
from sembridge.wire import framed

MS = 1_000_000


def ranks(*, projects):
    tail = {"output_head": 8 * MS, "socket": 4 * MS, "to_host": 2 * MS}
    head = {"to_device": 2 * MS}
    if projects:
        tail["projection"] = 6 * MS
    else:
        head |= {"all_gather": 10 * MS, "sampling": 4 * MS}
    logits, stages = [10 * MS, 110 * MS], [0, 60 * MS, 160 * MS]
    return {
        "head/0": {"spent": head, "moments": {"logits": [], "stage": stages}},
        "tail/0": {"spent": tail, "moments": {"logits": logits, "stage": []}},
        "tail/1": {"spent": {"socket": 1 * MS}, "moments": {"logits": logits, "stage": []}},
    }


def test_components_are_the_slowest_lanes_means_by_the_figures_names():
    full, projected = components(ranks(projects=False), 2), components(ranks(projects=True), 2)
    assert full == {
        "output_head_ms": 4.0,
        "socket_blocked_ms": 2.0,
        "next_stage_ms": 50.0,
        "logits_d2h_ms": 1.0,
        "h2d_allgather_sampling_ms": 8.0,
    }
    assert projected == {
        "output_head_ms": 4.0,
        "socket_blocked_ms": 2.0,
        "next_stage_ms": 50.0,
        "projection_ms": 3.0,
        "token_d2h_ms": 1.0,
        "token_h2d_ms": 1.0,
    }


def test_clocks_time_what_they_are_asked_to():
    class Worker:
        def work(self, much):
            return [0] * much

        def rest(self):
            return None

    clocks, worker = Clocks(), Worker()
    clocks.wrap(worker, "work", lambda much: "much" if much > 10 else None)
    clocks.mark(worker, "rest", "stage")
    assert len(worker.work(5)) == 5 and not clocks.spent
    assert len(worker.work(50)) == 50 and clocks.spent["much"] > 0
    assert worker.rest() is None and len(clocks.moments["stage"]) == 1


def timed(ask: Ask) -> Run:
    fast = ask.arm.result == "semantic"
    return Run(
        tokens=((1,),),
        steps=1,
        forward=Traffic(frames=1, framed_bytes=1, payload_bytes=1),
        result=Traffic(frames=1, framed_bytes=1, payload_bytes=1),
        seconds=1.0,
        ttft_s=(1.0,),
        tpot_s=(1.0,),
        latency_s=(1.0,),
        timers_ms=components(ranks(projects=fast), 1 if fast else 2)
        | {"next_stage_ms": 10.0 if fast else 50.0},
    )


def test_timers_have_runs_of_their_own(monkeypatch):
    asked = []

    def run(ask):
        asked.append(ask)
        return timed(ask)

    monkeypatch.setattr(boundary, "engine", lambda: run)
    doc = document(figure2(Settings()), Settings(), 0.0)
    assert [ask.purpose for ask in asked] == ["timers"] * 2 * PAIRS
    lines = {c.name: c for c in doc.lines}
    change = lines["figure2.next_stage_change_percent"]
    assert (change.standing, change.ours.mean) == (Standing.HOLDS, pytest.approx(-80))
    assert lines["figure2.next_stage_change_ms"].ours == -40
    assert {c.standing for c in doc.lines} == {Standing.HOLDS, Standing.NOT_VALIDATED}
    assert all(c.ours is not None for c in doc.lines)


def test_the_effect_of_a_timer():
    comparison = versus("timers", Ask(model="", tp=1, arm=R0).arm, L0, model="", tp=1)
    rows = measure([comparison], timed, Settings(), "x")
    plain = [row for row in rows if row.task.pair >= 0]
    found = timer_effect(plain, "next_stage_ms")
    assert found.mean == pytest.approx(400)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A tiny random model in place of one with a real vocabulary."""
    pytest.importorskip("torch", reason="the extra `live` is not installed")
    pytest.importorskip("transformers", reason="the extra `live` is not installed")
    from sembridge.live import parts

    folder = tmp_path_factory.mktemp("model")
    parts.save(parts.load("qwen3", vocab_size=512, num_hidden_layers=2, hidden_size=64), folder)
    return folder


def test_a_run_serves_tokens_of_the_unsplit_model_and_sends_what_plans_say(small, monkeypatch):
    from sembridge.live import parts, session

    monkeypatch.setattr(engines, "saved", lambda model: small)
    ask = Ask(model="qwen3", tp=1, arm=R0, concurrency=2, output_tokens=3, prompt_tokens=4)
    ran = engines.run(ask)
    prompts = engines.prompts(ask, 512)
    config = parts.read_config(small)
    model = parts.transformers.AutoModelForCausalLM.from_config(config, dtype=parts.torch.float32)
    model.load_state_dict(parts.safetensors.load_file(small / parts.WEIGHTS), strict=False)
    model.tie_weights()
    wanted = parts.greedy(model.eval(), prompts, ask.output_tokens).tokens
    assert [list(row) for row in ran.tokens] == wanted
    edges = model_edges(session.facts_of(small), Deployment(tp=1, rows=ask.concurrency))
    ob = resolve_valid(edges["result"].contract())
    told = framed(ob, lower_valid(ob, POLICIES[R0.result])[0].ops)
    assert ran.result.frames == ask.output_tokens * told.frames
    assert ran.result.framed_bytes == ask.output_tokens * told.framed
    assert ran.steps == ask.output_tokens
    assert 0 < ran.ttft_s[0] <= ran.latency_s[0] == ran.seconds
