"""The host process of one domain: loads torch once, then forks a rank for each lane.

Run by :mod:`sembridge.live.launch` as ``python -m sembridge.live.host``, with its orders as one
JSON line on stdin. Stdin stays open: when it ends, the launcher is gone, and so is everything
here. A rank reports on a pipe of its own; the host only says how each one ended.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import warnings
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from sembridge.errors import SemBridgeError
from sembridge.live.auth import Credentials, Refusals, Tls
from sembridge.live.backends import backend, torch
from sembridge.live.executor import Rank
from sembridge.live.link import Link, LinkSpec
from sembridge.live.mesh import Address, connect_mesh, listen, soon

PR_SET_PDEATHSIG = 1
MAX_ORDERS = 64 * 2**20


class Lane(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rank to fork, and the descriptors it inherits: its listener and its event pipe."""

    name: str
    listener: int | None
    events: int


class Orders(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a host is to run. ``task`` is ``module:function``, called with rank and arguments."""

    domain: str
    backend: str
    lanes: tuple[Lane, ...]
    ranks: tuple[Address, ...]
    key: bytes
    tls: Tls | None
    link: LinkSpec
    run_dir: str
    task: str
    arguments: dict[str, Any]
    deadline_s: float
    connect_s: float
    threads: int


def main() -> int:
    """Fork the lanes, and wait for every one of them."""
    line = sys.stdin.buffer.readline(MAX_ORDERS)
    orders = msgspec.json.decode(line, type=Orders)
    children: dict[int, str] = {}
    # From now on, since libraries take seconds to load.
    Thread(target=_end_with_launcher, args=(children, orders.run_dir), daemon=True).start()
    # The thread only reads, and holds nothing that a fork could copy.
    warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
    module, _, name = orders.task.partition(":")
    torch().set_num_threads(orders.threads)
    task = getattr(importlib.import_module(module), name)
    host = os.getpid()
    for lane in orders.lanes:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _rank_process(orders, lane, task, host)
        children[pid] = lane.name
    for lane in orders.lanes:
        os.close(lane.events)
        if lane.listener is not None:
            os.close(lane.listener)
    while children:
        pid, status = os.wait()
        ended = {"rank": children.pop(pid), "status": os.waitstatus_to_exitcode(status)}
        with suppress(BrokenPipeError):
            print(json.dumps(ended), flush=True)  # noqa: T201 - the launcher reads it
    return 0


def _end_with_launcher(children: dict[int, str], run_dir: str) -> None:
    while os.read(0, 4096):
        pass
    for pid in tuple(children):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(run_dir, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _rank_process(orders: Orders, lane: Lane, task: Any, host: int) -> NoReturn:
    status = 1
    try:
        _die_with_parent(host)
        for other in orders.lanes:
            if other is not lane:
                os.close(other.events)
                if other.listener is not None:
                    os.close(other.listener)
        status = run_rank(orders, lane, task)
    finally:
        # Nothing of the host's that was copied by the fork may run its own end here.
        os._exit(status)


def _die_with_parent(parent: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died first
        os._exit(1)


def run_rank(orders: Orders, lane: Lane, task: Any) -> int:
    """Connect a rank, run the task, and report its result or its error; the exit status."""

    def report(what: str, content: Any) -> None:
        line = json.dumps({what: content}).encode() + b"\n"
        while line:
            line = line[os.write(lane.events, line) :]

    try:
        rank = connect(orders, lane, partial(report, "event"))
        try:
            result = task(rank, orders.arguments)
            rank.flush()
            report("result", result)
        finally:
            rank.close()
    except SemBridgeError as error:
        report("error", {"code": error.code, "message": str(error)})
        return 1
    except Exception as error:
        report("error", {"code": "defect", "message": f"{type(error).__name__}: {error}"})
        raise
    return 0


def connect(orders: Orders, lane: Lane, emit: Any) -> Rank:
    """A connected rank of the host's domain."""
    chosen = backend(orders.backend)
    here = next(rank for rank in orders.ranks if rank.name == lane.name)
    listener = (
        listen(here.host, here.port)
        if lane.listener is None
        else socket.socket(fileno=lane.listener)
    )
    link = None
    if orders.link.shaped:
        link = Link(orders.link, f"{orders.run_dir}/link-{orders.domain}")
    refusals = Refusals()
    peers = connect_mesh(
        lane.name,
        orders.ranks,
        listener,
        Credentials(key=orders.key, tls=orders.tls),
        deadline=soon(orders.connect_s),
        link=link,
        refusals=refusals,
    )
    dist = torch().distributed
    lanes = len(orders.lanes)
    store = dist.FileStore(f"{orders.run_dir}/store-{orders.domain}", lanes)

    def join(members: tuple[str, ...]) -> Any:
        prefix = dist.PrefixStore("/".join(members), store)
        index = members.index(lane.name)
        return chosen.group(prefix, index, len(members), orders.deadline_s)

    number = int(lane.name.rpartition("/")[2])
    rank = Rank(
        lane.name,
        backend=chosen,
        device=chosen.device(number),
        peers=peers,
        join=join,
        deadline_s=orders.deadline_s,
        domain=orders.domain,
        lane=number,
        lanes=lanes,
        emit=emit,
    )
    rank.store = store
    rank.refused = refusals.count
    return rank


if __name__ == "__main__":
    sys.exit(main())
