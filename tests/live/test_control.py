"""The lifecycle over its real channel inside a host, and frames between leaders."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, Queue
from types import SimpleNamespace
from typing import Any

import pytest

from sembridge.live.control import MESSAGE_BYTES, Control
from sembridge.live.faults import PeerClosed
from sembridge.live.lifecycle import Action, Ended, Phase

HOSTS = {"a": 3, "b": 2}


class Wire:
    """Control frames between ranks of two hosts, as a connection carries them: in order."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, str], Queue[bytes]] = {}
        self.epochs: list[int] = []

    def queue(self, source: str, target: str) -> Queue[bytes]:
        return self.queues.setdefault((source, target), Queue())


def rank(wire: Wire, folder: Any, host: str, lane: int, deadline_s: float) -> Any:
    name = f"{host}/{lane}"

    def tell(peer: str, message: bytes, *, epoch: int) -> None:
        assert len(message) == MESSAGE_BYTES
        wire.epochs.append(epoch)
        wire.queue(name, peer).put(message)

    def hear(peer: str, size: int, *, epoch: int, deadline_s: float) -> bytes:
        try:
            return wire.queue(peer, name).get(timeout=deadline_s)
        except Empty:
            raise PeerClosed("closed the connection", local=name, peer=peer) from None

    return SimpleNamespace(
        domain=host,
        lane=lane,
        deadline_s=deadline_s,
        store=SimpleNamespace(path=str(folder / f"store-{host}")),
        tell=tell,
        hear=hear,
    )


@contextmanager
def ranks(folder, hosts, deadline_s=2.0):
    """Every rank's control, made before any of them speaks."""
    wire = Wire()
    made = {
        (host, lane): Control(rank(wire, folder, host, lane, deadline_s), hosts)
        for host, lanes in hosts.items()
        for lane in range(lanes)
    }
    yield wire, made
    for control in made.values():
        control.close()


@pytest.fixture
def world(tmp_path):
    with ranks(tmp_path, HOSTS) as made:
        yield made


def together(controls, act):
    """``act`` at every rank at once; what each gave, or the error that ended it."""

    def guarded(key):
        try:
            return act(key, controls[key].lifecycle)
        except Ended as error:
            return error

    with ThreadPoolExecutor(len(controls)) as threads:
        return dict(zip(controls, threads.map(guarded, controls), strict=True))


def request(key, life):
    assert life.agree(Action.ADMIT) is Action.ADMIT
    assert life.agree(Action.CONTINUE) is Action.CONTINUE
    assert life.agree(Action.RETIRE) is Action.RETIRE
    return life.retire()


def test_requests_pass_epoch_by_epoch(world):
    wire, controls = world
    for epoch in (1, 2, 3):
        assert set(together(controls, request).values()) == {epoch}
    assert sorted(wire.epochs) == [0, 0, 1, 1, 2, 2]


def test_one_rank_that_is_not_ready_holds_its_host_and_not_the_other(world):
    _, controls = world

    def act(key, life):
        life.agree(Action.CONTINUE if key == ("a", 2) else Action.ADMIT)
        return life.state.phase

    phases = together(controls, act)
    assert {phase for (host, _), phase in phases.items() if host == "a"} == {Phase.IDLE}
    assert {phase for (host, _), phase in phases.items() if host == "b"} == {Phase.RUNNING}


@pytest.mark.parametrize("victim", [("a", 2), ("a", 0), ("b", 0), ("b", 1)])
def test_a_rank_that_is_silent_ends_every_other(world, victim):
    _, controls = world
    ended = together({k: c for k, c in controls.items() if k != victim}, request)
    assert all(isinstance(error, Ended) for error in ended.values())


def test_a_rank_that_fails_says_why_to_its_host(world):
    _, controls = world

    def act(key, life):
        if key == ("a", 1):
            life.fail("edge 2: the frame was damaged on its way")
            return None
        return request(key, life)

    ended = together(controls, act)
    assert ended.pop(("a", 1)) is None
    assert all(isinstance(error, Ended) for error in ended.values())
    for lane in (0, 2):
        assert "damaged on its way" in str(ended["a", lane])


def test_a_leader_that_comes_late_is_waited_for(tmp_path):
    """More ranks speak at once than a socket holds datagrams for."""
    with ranks(tmp_path, {"a": 24, "b": 1}, deadline_s=20.0) as (_, controls):

        def act(key, life):
            if key == ("a", 0):
                time.sleep(0.3)
            return request(key, life)

        assert set(together(controls, act).values()) == {1}
