"""Processes that are killed, stopped or cut off: typed errors in time, and nothing left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.faults import (
    CONNECTING,
    DEADLINE_S,
    LAUNCHER,
    Outcome,
    Scenario,
    allowed_s,
    faults_of,
    run,
    scenarios,
)
from sembridge.live.backends import native_errors
from sembridge.live.faults import DeadlineExceeded, PeerClosed, RunFailed
from sembridge.live.frame import control
from sembridge.live.launch import Side, launch
from sembridge.live.link import Link, LinkSpec
from sembridge.live.netns import absent
from tests.live.pairs import connected, soon

pytest.importorskip("torch", reason="torch is not installed: the extra `live` has it")

ALL = {scenario.name: scenario for scenario in scenarios()}
FEW = (
    "head/1 killed within a send",
    "tail/1 killed in a collective",
    "tail/0 stopped within a receive",
    "host head killed between requests",
    "host tail killed connecting",
    "launcher killed within a send",
    "launcher killed connecting",
)


def good(**changed: Any) -> Outcome:
    fields: dict[str, Any] = {
        "error": "run",
        "ends": {"tail/0": "peer-closed"},
        "unplaced": [],
        "wrong": 0,
        "processes": 0,
        "descriptors": 0,
        "files": 0,
        "grown_kib": 0,
        "survivors_s": 0.1,
        "run_s": 1.1,
    }
    return Outcome(**fields | changed)


@pytest.mark.parametrize("name", FEW)
def test_survivors_end_in_time_with_an_error_that_says_where(name: str):
    scenario = ALL[name]
    outcome = run(scenario)
    assert faults_of(scenario, outcome) == [], outcome
    if scenario.victim != LAUNCHER and scenario.moment != CONNECTING:
        # Every rank depends on the one that suffers, so every one has something to say.
        assert set(outcome.ends.values()) <= {PeerClosed.code, DeadlineExceeded.code}


@pytest.mark.skipif(absent() is not None, reason=absent() or "")
def test_a_link_that_drops_everything_is_a_deadline():
    scenario = ALL["link cut within a receive"]
    outcome = run(scenario)
    assert faults_of(scenario, outcome) == [], outcome
    assert outcome.ends["tail/0"] == DeadlineExceeded.code
    assert outcome.survivors_s >= DEADLINE_S / 2


def idle(rank: Any, arguments: dict[str, Any]) -> None:
    rank.emit({"idle": True})
    time.sleep(60)


def test_a_host_that_dies_is_noticed_though_nobody_waits_for_its_ranks():
    hosts: dict[str, int] = {}
    start = time.monotonic()
    with pytest.raises(RunFailed) as caught:
        launch(
            (Side(domain="head", lanes=1), Side(domain="tail", lanes=1)),
            "tests.live.test_faults:idle",
            {},
            on_start=hosts.update,
            on_event=lambda rank, event: os.kill(hosts["head"], signal.SIGKILL),
            deadline_s=60,
        )
    assert str(caught.value) == "head/0: ended without a word"
    assert time.monotonic() - start < 50


def test_what_a_native_library_says_is_typed_and_names_the_others():
    members = ("head/0", "head/1", "head/2")
    for said, kind in (
        ("Wait timeout", DeadlineExceeded),
        ("[gloo] Timed out waiting 1000ms for recv", DeadlineExceeded),
        ("Connection closed by peer [127.0.0.1]:1", PeerClosed),
    ):
        with pytest.raises(kind) as caught, native_errors("head/1", members):
            raise RuntimeError(f"{said}. And more.\nAnd more")
        assert (caught.value.local, caught.value.peer) == ("head/1", "head/0, head/2")
        assert caught.value.message == f"native collective: {said}"


def test_a_link_that_is_too_slow_is_late_and_holds_nobody_up(tmp_path: Path):
    link = Link(LinkSpec(rate_bit_s=1000), str(tmp_path / "link"))
    with connected(link) as (left, _):
        due = control(2**20, epoch=0)
        left.send(due, memoryview(bytearray(2**20)), deadline=soon(0.2))
        with pytest.raises(DeadlineExceeded):
            left.flush(soon(30))
        start = time.monotonic()
    assert time.monotonic() - start < 10  # the link would be busy for hours
    link.close()


def test_every_rank_fails_in_every_way_somewhere():
    for fate in ("killed", "stopped"):
        victims = {s.victim for s in ALL.values() if s.fate == fate}
        assert victims >= {"head/0", "head/1", "tail/0", "tail/1"}
    assert {"host head", "host tail", LAUNCHER, "link"} <= {s.victim for s in ALL.values()}


def test_what_counts_as_amiss():
    scenario = Scenario(fate="killed", victim="head/1", moment="before a send", by="head/1")
    late = allowed_s(scenario)
    assert faults_of(scenario, good()) == []
    for changed, said in (
        ({"error": ""}, "did not fail"),
        ({"error": "no fault"}, "no fault"),
        ({"unplaced": ["tail/0"]}, "not placed"),
        ({"wrong": 1}, "wrong values"),
        ({"survivors_s": late + 0.1}, "survivor ended"),
        ({"run_s": late + 1.1}, "run ended"),
        ({"processes": 1}, "1 processes left"),
        ({"descriptors": 2}, "2 descriptors left"),
        ({"files": 1}, "1 files left"),
        ({"grown_kib": 2**30}, "grew"),
    ):
        (found,) = faults_of(scenario, good(**changed))
        assert said in found
