"""The link for real: two network namespaces joined by a veth pair that ``tc`` shapes.

Linux and root only; where it cannot be made the emulator (:mod:`sembridge.live.link`) takes its
place. The rate is the kernel's; a delay can be emulated on top of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from sembridge.errors import BadInput

PREFIX = "sembridge"
NETNS = Path("/run/netns")
DEVICE = "veth0"
NETWORK = "10.83.0"
PORT = 29500
BURST = 2**17
"""Bytes that pass unshaped (1 ms at 1 Gbit/s). With less than a 64 KiB segment, the kernel cuts
every segment up before it shapes, and a busy machine stays far below the rate."""

QUEUE_S = 0.05
"""Seconds of traffic that wait for the link before packets are dropped."""


class End(Struct, frozen=True, kw_only=True):
    """One end of a shaped link: what a launched side is told of it."""

    namespace: str
    host: str
    port: int = PORT

    def inside(self) -> list[str]:
        """The words before a command that run it at this end."""
        return ["ip", "netns", "exec", self.namespace]


class Namespaces(Struct, frozen=True, kw_only=True):
    """Two ends, and the rate between them in bit/s (None: as fast as the machine goes)."""

    near: End
    far: End
    rate_bit_s: float | None

    def cut(self) -> None:
        """Drop every packet from now on, both ways, and close nothing."""
        _ip("-n", self.near.namespace, "link", "set", DEVICE, "down")


def absent() -> str | None:
    """Why no namespaces can be made here, or None."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"no {' and no '.join(missing)} command (iproute2)"
    return None if os.geteuid() == 0 else "network namespaces need root"


@contextmanager
def namespaces(rate_bit_s: float | None = None) -> Generator[Namespaces]:
    """Make two joined namespaces, shaped both ways; at the end end what runs in them, too.

    Those of a process that was killed are removed by the next one that makes any.

    Raises:
        BadInput: they cannot be made here.
    """
    if (reason := absent()) is not None:
        raise BadInput(reason)
    _sweep()
    ends = [
        End(namespace=f"{PREFIX}-{os.getpid()}-{i}", host=f"{NETWORK}.{i + 1}") for i in range(2)
    ]
    try:
        for end in ends:
            _ip("netns", "add", end.namespace)
        near, far = (end.namespace for end in ends)
        _ip(
            *("-n", near, "link", "add", "name", DEVICE, "type", "veth"),
            *("peer", "name", DEVICE, "netns", far),
        )
        for end in ends:
            _ip("-n", end.namespace, "address", "add", f"{end.host}/30", "dev", DEVICE)
            for device in ("lo", DEVICE):
                _ip("-n", end.namespace, "link", "set", device, "up")
            if rate_bit_s is not None:
                _shape(end.namespace, rate_bit_s)
        yield Namespaces(near=ends[0], far=ends[1], rate_bit_s=rate_bit_s)
    finally:
        for end in ends:
            _remove(end.namespace)


def _shape(namespace: str, rate_bit_s: float) -> None:
    limit = int(rate_bit_s / 8 * QUEUE_S) + BURST
    _run(
        *("tc", "-n", namespace, "qdisc", "add", "dev", DEVICE, "root", "tbf"),
        *("rate", f"{rate_bit_s:.0f}bit", "burst", f"{BURST}b", "limit", f"{limit}b"),
    )


def _remove(namespace: str) -> None:
    if not (NETNS / namespace).exists():
        return
    with suppress(BadInput):
        for pid in _ip("netns", "pids", namespace).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _ip("netns", "delete", namespace)


def _sweep() -> None:
    for path in NETNS.glob(f"{PREFIX}-*"):
        owner = path.name.split("-")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            _remove(path.name)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    ran = subprocess.run(words, capture_output=True, text=True)
    if ran.returncode:
        said = ran.stderr.strip() or f"exit status {ran.returncode}"
        raise BadInput(f"no namespaces here: {' '.join(words)}: {said}")
    return ran.stdout
