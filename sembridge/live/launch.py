"""Launch the ranks of two or more domains as processes, and leave none of them behind.

Each domain has a host process (:mod:`sembridge.live.host`), which forks its ranks; the launcher
reads what they say, and ends all of them at the first that fails, at the deadline, or when it is
interrupted.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct, field

from sembridge.errors import BadInput
from sembridge.live.auth import Tls, new_key
from sembridge.live.backends import BACKENDS
from sembridge.live.faults import DeadlineExceeded, RunFailed
from sembridge.live.host import Lane, Orders
from sembridge.live.link import LinkSpec
from sembridge.live.mesh import LOOPBACK, Address, listen

MAX_LANES = 64
UNSHAPED = LinkSpec()
MAX_LINE = 16 * 2**20
SILENT = ("defect", "ended without a word")
"""All that is known of a rank whose host is gone, too."""

GRACE_S = 1.0
"""How long the other ranks may take to say what a failure did to them."""


class Side(Struct, frozen=True, kw_only=True):
    """A domain to launch: its lanes, its backend, where it listens.

    In a network namespace, or on other addresses than loopback, ranks bind ``port``, ``port`` + 1
    and so on themselves.
    """

    domain: str
    lanes: int
    backend: str = "gloo"
    host: str = LOOPBACK
    port: int = 0
    namespace: str | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """What every rank returned, by its name, and how long the run took in seconds."""

    results: dict[str, Any]
    seconds: float


class _Reader(Struct, kw_only=True):
    rank: str
    pending: bytearray = field(default_factory=bytearray)


def launch(
    sides: Sequence[Side],
    task: str,
    arguments: Mapping[str, Any],
    *,
    deadline_s: float = 120.0,
    op_deadline_s: float = 30.0,
    connect_s: float = 30.0,
    link: LinkSpec = UNSHAPED,
    tls: Tls | None = None,
    on_event: Callable[[str, dict[str, Any]], None] = lambda rank, event: None,
    on_start: Callable[[dict[str, int]], None] = lambda hosts: None,
    threads: int = 1,
) -> Outcome:
    """Run ``task`` (``module:function``) at every rank ``domain/lane`` of every side.

    The function is called with the :class:`~sembridge.live.executor.Rank` and ``arguments``, and
    returns something that JSON can say. ``op_deadline_s`` bounds every wait for a peer,
    ``connect_s`` the wait for all of them at the start, ``deadline_s`` the run. ``on_event``
    receives what ranks emit, ``on_start`` the hosts' process ids.

    Raises:
        RunFailed: the first rank to fail, with its reason; what it did to others is in ``errors``.
        DeadlineExceeded: the run took too long.
        BadInput: sides that cannot be launched.
    """
    for side in sides:
        if not 1 <= side.lanes <= MAX_LANES:
            raise BadInput(f"{side.lanes} lanes in {side.domain}: expected 1 to {MAX_LANES}")
        if side.backend not in BACKENDS:
            raise BadInput(f"no backend {side.backend!r}; there are {', '.join(BACKENDS)}")
    if len({side.domain for side in sides}) != len(sides):
        raise BadInput("two sides of one domain")
    run = _Run(on_event)
    try:
        run.start(
            sides,
            task=task,
            arguments=dict(arguments),
            op_deadline_s=op_deadline_s,
            connect_s=connect_s,
            link=link,
            tls=tls,
            threads=threads,
        )
        on_start({domain: host.pid for domain, host in run.hosts.items()})
        return run.watch(deadline_s)
    finally:
        run.end()


class _Run:
    def __init__(self, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self.hosts: dict[str, subprocess.Popen[bytes]] = {}
        self._on_event = on_event
        self._dir = tempfile.mkdtemp(prefix="sembridge-")
        self._readers = selectors.DefaultSelector()
        self._open: list[int] = []
        self._started = monotonic()
        self.results: dict[str, Any] = {}
        self.errors: dict[str, tuple[str, str]] = {}
        self._expected: set[str] = set()

    def start(
        self,
        sides: Sequence[Side],
        *,
        task: str,
        arguments: dict[str, Any],
        op_deadline_s: float,
        connect_s: float,
        link: LinkSpec,
        tls: Tls | None,
        threads: int,
    ) -> None:
        listeners: dict[str, socket.socket] = {}
        ranks: list[Address] = []
        try:
            for side in sides:
                bound_here = side.namespace is None and not side.port
                for i in range(side.lanes):
                    name, port = f"{side.domain}/{i}", side.port + i
                    if bound_here:
                        listeners[name] = listen(side.host)
                        port = listeners[name].getsockname()[1]
                    ranks.append(Address(name=name, domain=side.domain, host=side.host, port=port))
            self._expected = {rank.name for rank in ranks}
            key = new_key()
            for side in sides:
                self._start_host(
                    side,
                    listeners,
                    Orders(
                        domain=side.domain,
                        backend=side.backend,
                        lanes=(),
                        ranks=tuple(ranks),
                        key=key,
                        tls=tls,
                        link=link,
                        run_dir=self._dir,
                        task=task,
                        arguments=arguments,
                        deadline_s=op_deadline_s,
                        connect_s=connect_s,
                        threads=threads,
                    ),
                )
        finally:
            for listener in listeners.values():
                listener.close()

    def _start_host(
        self, side: Side, listeners: Mapping[str, socket.socket], orders: Orders
    ) -> None:
        lanes: list[Lane] = []
        writers: list[int] = []
        for i in range(side.lanes):
            name = f"{side.domain}/{i}"
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._open.append(reader)
            self._readers.register(reader, selectors.EVENT_READ, _Reader(rank=name))
            writers.append(writer)
            listener = listeners.get(name)
            lanes.append(
                Lane(
                    name=name,
                    listener=None if listener is None else listener.fileno(),
                    events=writer,
                )
            )
        inherited = [*writers, *[lane.listener for lane in lanes if lane.listener is not None]]
        inside = [] if side.namespace is None else ["ip", "netns", "exec", side.namespace]
        try:
            host = subprocess.Popen(
                [*inside, sys.executable, "-m", "sembridge.live.host"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=inherited,
                start_new_session=True,
                env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": _path()},
            )
        finally:
            for writer in writers:
                os.close(writer)
        self.hosts[side.domain] = host
        assert host.stdin is not None and host.stdout is not None
        os.set_blocking(host.stdout.fileno(), False)
        self._readers.register(host.stdout, selectors.EVENT_READ, _Reader(rank=""))
        given = msgspec.structs.replace(orders, lanes=tuple(lanes))
        with suppress(BrokenPipeError):
            host.stdin.write(msgspec.json.encode(given) + b"\n")
            host.stdin.flush()

    def watch(self, deadline_s: float) -> Outcome:
        """Read until every rank has ended; the first failure ends the wait shortly after."""
        deadline = self._started + deadline_s
        grace: float | None = None
        while self._readers.get_map():
            until = deadline if grace is None else min(grace, deadline)
            if (left := until - monotonic()) <= 0:
                break
            for key, _ in self._readers.select(left):
                self._read(key)
            if self.errors and grace is None:
                grace = monotonic() + GRACE_S
        if self.errors:
            raise self._failure()
        if absent := self._expected - self.results.keys():
            raise DeadlineExceeded(
                f"the run took more than {deadline_s:g} s; unfinished: {', '.join(sorted(absent))}"
            )
        return Outcome(results=self.results, seconds=monotonic() - self._started)

    def _read(self, key: selectors.SelectorKey) -> None:
        reader: _Reader = key.data
        try:
            piece = os.read(key.fd, 1 << 16)
        except BlockingIOError:
            return
        if not piece:
            self._readers.unregister(key.fileobj)
            if reader.rank and reader.rank not in self.results:
                self.errors.setdefault(reader.rank, SILENT)
            return
        reader.pending += piece
        *lines, rest = reader.pending.split(b"\n")
        reader.pending = bytearray(rest)
        if len(rest) > MAX_LINE:
            self.errors.setdefault(reader.rank, ("defect", "says too much in one line"))
            self._readers.unregister(key.fileobj)
        for line in lines:
            self._understand(reader.rank, json.loads(line))

    def _understand(self, rank: str, said: dict[str, Any]) -> None:
        match said:
            case {"event": event}:
                self._on_event(rank, event)
            case {"result": result}:
                self.results[rank] = result
            case {"error": {"code": code, "message": message}}:
                self.errors.setdefault(rank, (code, message))
            case {"rank": name, "status": status}:
                if status < 0:
                    self.errors[name] = ("killed", f"ended by {signal.Signals(-status).name}")
                elif status and not self._heard(name):
                    # With status 0 its result may still be in its own pipe.
                    self.errors[name] = ("defect", f"ended with status {status}")
            case _:
                self.errors.setdefault(rank, ("defect", "says what the launcher cannot read"))

    def _heard(self, rank: str) -> bool:
        """Whether a rank itself said how it ended."""
        return rank in self.results or self.errors.get(rank, SILENT) is not SILENT

    def _failure(self) -> RunFailed:
        """Causes before consequences: a closed peer is the consequence of something."""
        order = {"killed": 0, "peer-closed": 3, "deadline": 2}
        rank = min(self.errors, key=lambda name: order.get(self.errors[name][0], 1))
        return RunFailed(
            rank,
            self.errors[rank][1],
            {name: message for name, (_, message) in self.errors.items()},
        )

    def end(self) -> None:
        """Kill what still runs, wait for it, and remove what it left."""
        for host in self.hosts.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(host.pid, signal.SIGKILL)
        for host in self.hosts.values():
            host.wait()
            for pipe in (host.stdin, host.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
        self._readers.close()
        for reader in self._open:
            os.close(reader)
        shutil.rmtree(self._dir, ignore_errors=True)


def _path() -> str:
    """This process's module path, for hosts to find the same code."""
    return os.pathsep.join(p for p in sys.path if p)
