"""A model across the boundary: requests decide, consumers match, bytes are the plans'."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from msgspec.structs import replace

from sembridge.errors import BadInput
from sembridge.live import parts, session
from sembridge.live.faults import RunFailed
from sembridge.live.mapper import Aggregation
from sembridge.live.session import NOTHING, Ask, Site, judge, plan, run, switching, totals
from sembridge.wire import framed

VOCABULARY, LANES = 203, 2
SITE = Site(tp=LANES, head="gloo-staged", deadline_s=180)
"""The head's memory is treated as a device's: what crosses is staged on its side."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = parts.load("minimax-m2", vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2)
    parts.save(model, folder)
    return model, folder, session.facts_of(folder)


@pytest.fixture(scope="module")
def served(saved):
    """The surface-switching run, and two requests beyond the paper's, by one pair of engines."""
    model, folder, facts = saved
    asks = switching(LANES, VOCABULARY)
    prompts = ((5, 4, 3), (9, 8, 7))
    more = Ask(id="top", body={"temperature": 0, "logprobs": 2}, prompts=prompts, steps=3, own=True)
    first = parts.greedy(model, prompts[:1], 4).tokens[0]
    stopped = Ask(
        id="stop", body={"temperature": 0}, prompts=prompts[:1], steps=9, stop=(first[2],)
    )
    asks += [more, stopped]
    planned = [plan(facts, SITE, ask) for ask in asks]
    events: list[tuple[str, dict[str, Any]]] = []
    outcome = run(folder, SITE, planned, on_event=lambda rank, e: events.append((rank, e)))
    references = {ask.id: parts.greedy(model, ask.prompts, ask.steps) for ask in asks}
    found = judge(planned, outcome, references)
    return planned, found, events, outcome, references


def test_every_consumer_matches_and_every_byte_is_the_plans(served):
    _, found, _, _, _ = served
    for one in found:
        assert one.sent == one.wire
        assert one.matched == one.consumers == one.steps * LANES
        assert one.largest_logprob_error < 1e-4
    assert [one.epoch for one in found] == list(range(1, len(found) + 1))


def test_the_surface_decides_what_crosses(served):
    classes = totals(served[1])
    at = {name: classes[name] for name in session.CLASSES}
    assert {n: (t.result.frames, t.positions) for n, t in at.items()} == {
        "logprobs": (9 * LANES, 17),
        "token_only": (5 * LANES, 17),
        "owner_scoped": (5, 17),
    }
    # Complete logits cross once, in slices; a token is four bytes for each lane, or once.
    assert at["logprobs"].result.payload == 17 * VOCABULARY * 4
    assert at["token_only"].result.framed == 5 * LANES * 48 + LANES * 17 * 4
    assert at["owner_scoped"].result.framed == 5 * 48 + 17 * 4
    assert at["owner_scoped"].senders == (LANES - 1,)


def test_a_request_ends_where_its_stop_token_comes(served):
    planned, found, _, _, references = served
    (stop,) = planned[-1].ask.stop
    ends = references["stop"].tokens[0].index(stop) + 1
    assert ends < planned[-1].ask.steps
    assert (found[-1].steps, found[-1].sent["hidden"].frames) == (ends, ends)


def test_tokens_stream_as_they_come(served):
    planned, found, events, _, _ = served
    for one in found:
        rows = [e["tokens"] for _, e in events if e["request"] == one.id]
        assert [list(r) for r in zip(*rows, strict=True)] == one.tokens
    assert {rank for rank, _ in events} == {"head/0"}
    assert [p.switches[1].result_aggregation for p in planned[::2][:3]] == [
        Aggregation.SLICES,
        Aggregation.MAPPED,
        Aggregation.REPRESENTATIVE,
    ]


def test_a_wrong_consumer_or_a_stray_byte_is_seen(served):
    planned, _, _, outcome, references = served
    changed = {name: [dict(seen) for seen in result] for name, result in outcome.results.items()}
    victim = changed["head/1"][0]
    victim["digests"] = ["0" * 32]
    spent = changed["tail/0"][3]
    spent["sent"] = {**spent["sent"], "result": {"frames": 9, "payload": 1, "framed": 1}}
    wrong = changed["head/0"][5]
    wrong["tokens"] = [[t + 1 for t in row] for row in wrong["tokens"]]
    found = judge(planned, type(outcome)(results=changed, seconds=0.0), references)
    assert [one.holds for one in found] == [False, True, True, False, True, False, True, True]
    assert [found[0].matched, found[5].matched] == [LANES - 1, 4]


def test_what_crosses_is_known_before_anything_starts(saved):
    _, _, facts = saved
    ask = Ask(id="r", body={"temperature": 0}, prompts=((1, 2, 3),) * 2, steps=4)
    planned = plan(facts, SITE, ask)
    wire = planned.wire(4)
    for edge in session.EDGES:
        frames = [
            framed(session.resolve_valid(getattr(program, edge).contract), plans[edge].ops)
            for program, plans in zip(
                (planned.request.first, planned.request.then), planned.plans, strict=True
            )
        ]
        assert wire[edge] == sum([frames[1]] * 3, start=frames[0])
    assert wire["hidden"].payload == (2 * 3 + 3 * 2) * facts.hidden * 4
    assert planned.wire(1)["result"] != NOTHING


def test_requests_that_the_engines_do_not_serve(saved):
    _, _, facts = saved
    greedy = Ask(id="r", body={"temperature": 0}, prompts=((1, 2),), steps=1)
    for change, named in (
        ({"body": {"temperature": 0.7}}, r"\$\.temperature"),
        ({"body": {"temperature": 0, "min_tokens": 3}}, r"\$\.min_tokens"),
        ({"body": {"temperature": "hot"}}, r"\$\.temperature"),
        ({"prompts": ((1,), (1, 2))}, "one length"),
        ({"steps": 0}, "at least one token"),
    ):
        with pytest.raises(BadInput, match=named):
            plan(facts, SITE, replace(greedy, **change))


def test_a_domain_killed_amid_a_request_ends_the_run(saved):
    _, folder, facts = saved
    ask = Ask(id="r", body={"temperature": 0}, prompts=((1, 2),), steps=10_000)
    hosts: dict[str, int] = {}
    events: list[dict[str, Any]] = []

    def kill_after_three(rank: str, event: dict[str, Any]) -> None:
        events.append(event)
        if len(events) == 3:
            os.killpg(hosts["tail"], signal.SIGKILL)

    with pytest.raises(RunFailed) as caught:
        run(folder, SITE, [plan(facts, SITE, ask)], on_event=kill_after_three,
            on_start=hosts.update)  # fmt: skip
    assert 3 <= len(events) < 100
    assert caught.value.errors
