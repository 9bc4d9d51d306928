"""A link that the kernel shapes: made, used by a launch, cut, and gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sembridge.errors import BadInput
from sembridge.live import netns
from sembridge.live.netns import NETNS, PREFIX, absent, namespaces

needs_root = pytest.mark.skipif(absent() is not None, reason=absent() or "")


def ours() -> set[str]:
    return {p.name for p in NETNS.glob(f"{PREFIX}-{os.getpid()}-*")}


def ping(words: list[str], host: str) -> bool:
    """Whether a connection from one end reaches a listener at the other."""
    code = "import socket, sys; socket.create_connection((sys.argv[1], 29999), timeout=1).close()"
    return (
        subprocess.run(
            [*words, sys.executable, "-c", code, host], stderr=subprocess.DEVNULL
        ).returncode
        == 0
    )


LISTEN = """
import socket
s = socket.create_server(("0.0.0.0", 29999))
print("listens", flush=True)
while True:
    s.accept()[0].close()
"""


@needs_root
def test_two_ends_reach_each_other_until_the_link_is_cut():
    with namespaces(1e9) as link:
        assert ours() == {link.near.namespace, link.far.namespace}
        listener = subprocess.Popen(
            [*link.far.inside(), sys.executable, "-c", LISTEN], stdout=subprocess.PIPE
        )
        assert listener.stdout is not None and listener.stdout.readline() == b"listens\n"
        assert ping(link.near.inside(), link.far.host)
        link.cut()
        assert not ping(link.near.inside(), link.far.host)
    # What still ran at one end was ended with it.
    assert listener.wait(10) < 0
    listener.stdout.close()
    assert not ours()


@needs_root
def test_the_rate_is_the_kernels():
    with namespaces(2e8) as link:
        for end in (link.near, link.far):
            shown = subprocess.run(
                [*end.inside(), "tc", "qdisc", "show", "dev", netns.DEVICE],
                capture_output=True,
                text=True,
                check=True,
            )
            assert "tbf" in shown.stdout and "rate 200Mbit" in shown.stdout


@needs_root
def test_what_a_killed_process_left_is_removed_by_the_next():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = f"{PREFIX}-{ended.pid}-0"
    subprocess.run(["ip", "netns", "add", left], check=True)
    with namespaces():
        assert not (NETNS / left).exists()


@needs_root
def test_nothing_stays_where_one_cannot_be_made():
    with pytest.raises(BadInput, match="no namespaces here: tc"), namespaces(rate_bit_s=-1):
        pass
    assert not ours()


def test_a_reason_where_there_is_no_root(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(netns.shutil, "which", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr(sys, "platform", "linux")
    assert absent() == "network namespaces need root"
    with pytest.raises(BadInput, match="need root"), namespaces():
        pass
    monkeypatch.setattr(netns.shutil, "which", lambda tool: None)
    assert absent() == "no ip and no tc command (iproute2)"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert absent() == "network namespaces are Linux's"


@needs_root
def test_a_launch_runs_over_it_and_the_probe_sees_its_rate():
    pytest.importorskip("torch", reason="torch is not installed: the extra `live` has it")
    from sembridge.live.probe import measure, sides_of

    with namespaces(1e8) as link:
        found = measure(sides_of(link))
    # Shaped: what passes unshaped is a burst, a queue of packets is not lost.
    assert 0.5e8 < found.rate_bit_s < 1.05e8
    assert 0 < found.rtt_min_s <= found.rtt_p50_s


def test_the_probe_sees_the_emulator():
    pytest.importorskip("torch", reason="torch is not installed: the extra `live` has it")
    from sembridge.live.link import LinkSpec
    from sembridge.live.probe import measure

    found = measure(link=LinkSpec(rate_bit_s=2e8, rtt_s=0.01))
    assert found.rate_bit_s < 2e8
    assert found.rtt_min_s >= 0.01
