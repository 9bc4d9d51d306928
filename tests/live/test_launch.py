"""Launched ranks: results, errors that name the cause, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sembridge.errors import BadInput
from sembridge.live.faults import DeadlineExceeded, RunFailed
from sembridge.live.launch import Side, launch
from sembridge.live.link import LinkSpec
from sembridge.lowering import lower
from sembridge.obligations import resolve_valid
from sembridge.surfaces import Tokens
from sembridge.wire import framed
from tests.core.build import contract

pytest.importorskip("torch", reason="torch is not installed: the extra `live` has it")

SIDES = (Side(domain="head", lanes=2), Side(domain="tail", lanes=2))


def alive(session: int) -> bool:
    """Whether any process of a host's session is left (a zombie is not)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, _, _, found = stat.rpartition(")")[2].split()[:4]
            if int(found) == session and state != "Z":
                return True
    return False


def eventually(condition: object, seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


def test_every_rank_sees_what_it_should():
    events: list[tuple[str, dict[str, int]]] = []
    done = launch(
        SIDES,
        "tests.live.tasks:owner_tokens",
        {"runs": 3},
        on_event=lambda rank, event: events.append((rank, event)),
        link=LinkSpec(rate_bit_s=1e9, rtt_s=0.0002),
    )
    assert done.results.keys() == {"head/0", "head/1", "tail/0", "tail/1"}
    assert all(r["right"] for r in done.results.values())
    ob = resolve_valid(contract(2, shape=(2, 50), owner=("p1",), surface=Tokens()))
    once = framed(ob, lower(ob.contract).ops).framed
    assert [r["sent"] for r in done.results.values() if r["sent"]] == [{"0": 3 * once}]
    assert done.results["head/1"]["sent"]  # the owner's, and nobody else's
    for rank in done.results:
        assert [event for name, event in events if name == rank] == [{"run": n} for n in range(3)]


@pytest.mark.parametrize(
    ("fate", "said"),
    [
        ("killed", "head/1: ended by SIGKILL"),
        ("exits", "head/1: ended with status 3"),
        ("fails", "head/1: ValueError: no such luck"),
    ],
)
def test_the_first_failure_is_named_and_ends_the_run(fate: str, said: str):
    hosts: dict[str, int] = {}
    with pytest.raises(RunFailed) as caught:
        launch(
            SIDES,
            "tests.live.tasks:owner_tokens",
            {"runs": 50, "victim": "head/1", "at": 1, "fate": fate},
            on_start=hosts.update,
        )
    assert str(caught.value) == said
    assert caught.value.exit_code == 4
    # The consumer that waited for it says which peer, edge and tag it waited for.
    assert "tail/0 <- head/1, edge 0, r/1/0/2: " in caught.value.errors["tail/0"]
    assert not any(alive(pid) for pid in hosts.values())


def test_a_rank_that_hangs_is_out_of_time():
    with pytest.raises(RunFailed, match=r"tail/0 <- head/1, edge 0, r/1/0/2: .*in time"):
        launch(
            SIDES,
            "tests.live.tasks:owner_tokens",
            {"runs": 2, "victim": "head/1", "fate": "sleeps"},
            op_deadline_s=0.5,
        )


def test_a_run_that_takes_too_long_is_ended():
    hosts: dict[str, int] = {}
    with pytest.raises(DeadlineExceeded, match=r"more than 4 s; unfinished: .*head/1"):
        launch(
            SIDES,
            "tests.live.tasks:owner_tokens",
            {"runs": 1, "victim": "head/1", "fate": "sleeps"},
            op_deadline_s=60,
            deadline_s=4,
            on_start=hosts.update,
        )
    assert not any(alive(pid) for pid in hosts.values())


def test_control_messages():
    done = launch(SIDES, "tests.live.tasks:talk", {})
    assert done.results["head/0"] == "from tail/0"
    assert done.results["tail/0"] == "from head/0"


def test_a_domain_has_a_process_group_of_its_own():
    done = launch((SIDES[0], Side(domain="tail", lanes=1)), "tests.live.tasks:own_group", {})
    assert done.results == {"head/0": 3.0, "head/1": 3.0, "tail/0": 1.0}


LAUNCHER = """
from sembridge.live.launch import Side, launch
launch(
    (Side(domain="head", lanes=2), Side(domain="tail", lanes=2)),
    "tests.live.tasks:owner_tokens",
    {"runs": 9, "victim": "head/1", "at": 1, "fate": "sleeps"},
    op_deadline_s=60,
    on_start=lambda hosts: print(*hosts.values(), flush=True),
    on_event=lambda rank, event: print("event", flush=True),
)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_ranks_do_not_outlive_their_launcher(end: signal.Signals):
    path = os.pathsep.join(p for p in sys.path if p)
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        cwd=Path(__file__).parent.parent.parent,
    )
    assert launcher.stdout is not None
    hosts = [int(pid) for pid in launcher.stdout.readline().split()]
    assert launcher.stdout.readline() == "event\n"
    assert all(alive(pid) for pid in hosts)
    launcher.send_signal(end)
    launcher.wait()
    launcher.stdout.close()
    assert eventually(lambda: not any(alive(pid) for pid in hosts))


def test_sides_that_cannot_be_launched():
    for sides, said in (
        ((Side(domain="a", lanes=0),), "0 lanes in a"),
        ((Side(domain="a", lanes=1, backend="mpi"),), "no backend 'mpi'"),
        ((SIDES[0], SIDES[0]), "two sides of one domain"),
    ):
        with pytest.raises(BadInput, match=said):
            launch(sides, "tests.live.tasks:talk", {})
