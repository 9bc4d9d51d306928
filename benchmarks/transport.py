"""The carrier against a raw TCP socket, gloo and, where they are installed, ucxx and NIXL.

Throughput of payloads of 64 B to 64 MiB and the round trip of small frames (64 B of payload), on
loopback, on the emulated link, and on two network namespaces that ``tc`` shapes. Each peer is a
pair of processes that stays connected; every round asks one peer after the other, so that what
disturbs the machine disturbs all. Run with ``python -m benchmarks.transport`` (some minutes, on
a quiet machine); ``--end`` is what it starts its processes with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from itertools import product
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any, Protocol

from benchmarks.record import machine, pipe_table, save
from sembridge.errors import BadInput
from sembridge.live.backends import torch
from sembridge.live.carrier import Connection
from sembridge.live.frame import Frame, Kind
from sembridge.live.link import Link, LinkSpec, wait_until
from sembridge.live.mesh import LOOPBACK, listen
from sembridge.live.netns import Namespaces, absent, namespaces

RATE, RTT = 1e9, 390e-6
"""The shaped links: bit/s, and (emulated only) seconds."""

SMALL = 64
SIZES = [SMALL << 2 * i for i in range(11)]
"""64 B to 64 MiB."""

PAYLOAD_OF_PACKET = 1448 / 1514
"""What TCP over Ethernet leaves of the rate that the kernel shapes."""

TARGET_FROM = 256 * 1024
THROUGHPUT_TARGET, ROUND_TRIP_TARGET = 0.95, 1.3
DEADLINE_S = 60.0

OWN, ANY = "own cores", "any core"
"""Each end on cores of its own, as on two hosts; or where the scheduler puts them, which may be
one core whose cache both share."""

BUDGET_S, MAX_TRIPS, MAX_PAYLOADS = 0.3, 2000, 20_000
"""What one peer is asked for at a time."""


# The peers --------------------------------------------------------------------------------------


class Wire(Protocol):
    """One end of a connection; payloads are taken in the order in which they were sent."""

    def send(self, payload: memoryview) -> None: ...
    def receive(self, into: memoryview) -> None: ...


class End(Protocol):
    """What a process knows of its place: who it is, where the far end listens, which link."""

    near: bool
    host: str
    port: int
    folder: str
    link: LinkSpec


def _sockets(end: End) -> socket.socket:
    if end.near:
        while True:
            try:
                return socket.create_connection((end.host, end.port), timeout=5)
            except OSError:
                sleep(0.05)
    with listen(end.host, end.port) as listener:
        return listener.accept()[0]


def _link(end: End) -> Link | None:
    name = f"{end.folder}/link-{end.near}"
    return Link(end.link, name) if end.link.shaped else None


@lru_cache
def _frame(size: int) -> Frame:
    fields = dict.fromkeys(("dtype", "edge", "request", "token", "microbatch", "epoch"), 0)
    return Frame(kind=Kind.VALUE, length=size, **fields)


class Carrier:
    """The kit's own connection."""

    def __init__(self, end: End) -> None:
        self.connection = Connection(_sockets(end), link=_link(end))

    def send(self, payload: memoryview) -> None:
        frame = _frame(payload.nbytes)
        self.connection.send(frame, payload, deadline=monotonic() + DEADLINE_S)

    def receive(self, into: memoryview) -> None:
        frame = _frame(into.nbytes)
        self.connection.receive(frame, into, deadline=monotonic() + DEADLINE_S)


class Raw:
    """A TCP socket with ``TCP_NODELAY``, ``sendall`` and ``recv_into``; nothing is framed."""

    def __init__(self, end: End) -> None:
        self.socket = _sockets(end)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link = _link(end)

    def send(self, payload: memoryview) -> None:
        if self.link is None:
            self.socket.sendall(payload)
            return
        start = self.link.reserve(payload.nbytes)
        for begin, stop, arrival in self.link.arrivals(start, payload.nbytes):
            wait_until(arrival)
            self.socket.sendall(payload[begin:stop])

    def receive(self, into: memoryview) -> None:
        got = 0
        while got < into.nbytes:
            got += self.socket.recv_into(into[got:])


class Gloo:
    """torch's gloo: ``send`` and ``recv`` of byte tensors."""

    def __init__(self, end: End) -> None:
        dist = torch().distributed
        options = dist.ProcessGroupGloo._Options()
        address = end.host if not end.near else _own_address(end.host)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
        store = dist.FileStore(f"{end.folder}/gloo", 2)
        self.group = dist.ProcessGroupGloo(store, int(not end.near), 2, options)
        self.other = int(end.near)

    def send(self, payload: memoryview) -> None:
        self.group.send([_tensor(payload)], self.other, 0).wait()

    def receive(self, into: memoryview) -> None:
        self.group.recv([_tensor(into)], self.other, 0).wait()


def _own_address(host: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return probe.getsockname()[0]


def _tensor(data: memoryview) -> Any:
    return torch().frombuffer(data, dtype=torch().uint8)


class Ucxx:
    """RAPIDS' UCX binding over TCP; its Python API is asynchronous."""

    def __init__(self, end: End) -> None:
        os.environ["UCX_TLS"] = "tcp,self"
        import ucxx  # pyright: ignore[reportMissingImports]

        self.loop = asyncio.new_event_loop()
        self.endpoint = self.loop.run_until_complete(self._connect(ucxx, end))

    async def _connect(self, ucxx: Any, end: End) -> Any:
        if end.near:
            while True:
                try:
                    return await ucxx.create_endpoint(end.host, end.port)
                except Exception:  # nobody listens yet
                    await asyncio.sleep(0.1)
        accepted = asyncio.get_running_loop().create_future()
        self.listener = ucxx.create_listener(accepted.set_result, port=end.port)
        return await accepted

    def send(self, payload: memoryview) -> None:
        self.loop.run_until_complete(self.endpoint.send(_array(payload)))

    def receive(self, into: memoryview) -> None:
        self.loop.run_until_complete(self.endpoint.recv(_array(into)))


def _array(data: memoryview) -> Any:
    import numpy

    return numpy.frombuffer(data, dtype=numpy.uint8)


class Nixl:
    """NIXL over UCX and TCP: a write into the peer's registered memory, and a notification."""

    def __init__(self, end: End) -> None:
        os.environ["UCX_TLS"] = "tcp,self"
        os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")
        from nixl_cu12._api import nixl_agent, nixl_agent_config  # pyright: ignore[reportMissingImports]

        self.peer = "far" if end.near else "near"
        self.agent = nixl_agent(
            "near" if end.near else "far", nixl_agent_config(enable_prog_thread=False)
        )
        # One side's inbox is the only memory that the other writes into.
        self.inbox = memoryview(bytearray(SIZES[-1]))
        self.registered: set[int] = set()
        self.agent.register_memory([_place(self.inbox)], "DRAM")
        self.inbox_of_peer = self._introduce(_sockets(end))
        self.heard = 0

    def _introduce(self, sock: socket.socket) -> int:
        with sock, sock.makefile("rwb") as stream:
            ours = {"at": _address(self.inbox), "agent": self.agent.get_agent_metadata().hex()}
            stream.write(json.dumps(ours).encode() + b"\n")
            stream.flush()
            theirs = json.loads(stream.readline())
        self.agent.add_remote_agent(bytes.fromhex(theirs["agent"]))
        return theirs["at"]

    def send(self, payload: memoryview) -> None:
        whole = memoryview(payload.obj)
        if _address(whole) not in self.registered:
            self.registered.add(_address(whole))
            self.agent.register_memory([_place(whole)], "DRAM")
        size = payload.nbytes
        there = self.agent.get_xfer_descs([(self.inbox_of_peer, size, 0)], "DRAM")
        here = self.agent.get_xfer_descs([(_address(payload), size, 0)], "DRAM")
        handle = self.agent.initialize_xfer("WRITE", here, there, self.peer, b"w")
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        assert state == "DONE", state
        self.agent.release_xfer_handle(handle)

    def receive(self, into: memoryview) -> None:
        while not self.heard:
            self.heard += len(self.agent.get_new_notifs().get(self.peer, []))
        self.heard -= 1


def _address(data: memoryview) -> int:
    return int(_array(data).ctypes.data)


def _place(data: memoryview) -> tuple[int, int, int, str]:
    return (_address(data), data.nbytes, 0, "")


PEERS: dict[str, Callable[[End], Wire]] = {
    "carrier": Carrier,
    "raw socket": Raw,
    "gloo": Gloo,
    "ucxx": Ucxx,
    "NIXL": Nixl,
}
EMULATED = ("carrier", "raw socket")
"""Peers that can send through the emulator, which is part of the carrier."""

MODULES = {"ucxx": "ucxx", "NIXL": "nixl_cu12"}


# One end, a process of its own ------------------------------------------------------------------


def serve(end: Any) -> None:
    """Connect, then do what each line on stdin says, and print the seconds that it took."""
    wire = PEERS[end.peer](end)
    data = memoryview(bytearray(os.urandom(2**20) * (SIZES[-1] // 2**20)))
    work = {"throughput": _throughput, "round trip": _round_trip}
    print("ready", flush=True)
    every = os.sched_getaffinity(0)
    for line in sys.stdin:
        order = json.loads(line)
        os.sched_setaffinity(0, {sorted(every)[not end.near]} if order["pinned"] else every)
        seconds = work[order["what"]](wire, end.near, data[: order["size"]], order["count"])
        print(json.dumps(seconds), flush=True)


def _throughput(wire: Wire, near: bool, data: memoryview, count: int) -> float:
    """Seconds from the first send until the last payload is acknowledged."""
    short, start = memoryview(bytearray(8)), perf_counter()
    for _ in range(count):
        (wire.send if near else wire.receive)(data)
    (wire.receive if near else wire.send)(short)
    return perf_counter() - start


def _round_trip(wire: Wire, near: bool, data: memoryview, count: int) -> float:
    """Median seconds."""
    trips: list[float] = []
    for _ in range(count):
        start = perf_counter()
        if near:
            wire.send(data)
        wire.receive(data)
        if not near:
            wire.send(data)
        trips.append(perf_counter() - start)
    return median(trips)


class Pair:
    """The two processes of one peer on one link."""

    def __init__(self, peer: str, place: Place, folder: str) -> None:
        port = _free_port()
        self.ends = [
            subprocess.Popen(
                [
                    *inside,
                    *(sys.executable, "-m", "benchmarks.transport", "--end", name),
                    *("--peer", peer, "--host", place.host, "--port", str(port)),
                    *("--folder", folder, "--rate", str(place.link.rate_bit_s or 0)),
                    *("--rtt", str(place.link.rtt_s)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name, inside in (("far", place.far), ("near", place.near))
        ]
        for end in self.ends:
            if self._line(end) != "ready":
                self.close()
                raise RuntimeError(f"{peer} did not connect on {place.name}")

    def ask(self, what: str, size: int, count: int, how: str) -> float:
        order = {"what": what, "size": size, "count": count, "pinned": how == OWN}
        for end in self.ends:
            assert end.stdin is not None
            end.stdin.write(json.dumps(order) + "\n")
            end.stdin.flush()
        _, near = [json.loads(self._line(end)) for end in self.ends]
        return near

    def _line(self, end: subprocess.Popen[str]) -> str:
        assert end.stdout is not None
        for line in end.stdout:  # libraries say things of their own
            if line.strip() == "ready" or line[:1].isdigit():
                return line.strip()
        return ""

    def close(self) -> None:
        for end in self.ends:
            end.kill()
            end.communicate()


def _free_port() -> int:
    with listen() as listener:
        return listener.getsockname()[1]


# The runs ---------------------------------------------------------------------------------------


class Place:
    """Where a pair runs: a link, and the words that put a command at either end of it."""

    def __init__(self, name: str, link: LinkSpec, shaped: Namespaces | None = None) -> None:
        self.name, self.link = name, link
        self.near = [] if shaped is None else shaped.near.inside()
        self.far = [] if shaped is None else shaped.far.inside()
        self.host = LOOPBACK if shaped is None else shaped.far.host
        self.peers = [p for p in PEERS if not link.shaped or p in EMULATED]
        self.rate = link.rate_bit_s
        if shaped is not None and shaped.rate_bit_s is not None:
            self.rate = shaped.rate_bit_s * PAYLOAD_OF_PACKET


@contextmanager
def places() -> Iterator[tuple[list[Place], str]]:
    """The three links, and why the last is not there."""
    emulated = LinkSpec(rate_bit_s=RATE, rtt_s=RTT)
    found = [Place("loopback", LinkSpec()), Place("emulated", emulated)]
    reason = absent() or ""
    with ExitStack() as stack:
        if not reason:
            try:
                shaped = stack.enter_context(namespaces(RATE))
                found.append(Place("namespaces", LinkSpec(), shaped))
            except BadInput as error:
                reason = str(error)
        yield found, reason


def installed(peer: str) -> bool:
    with suppress(ImportError):
        __import__(MODULES.get(peer, "json"))
        return True
    return False


def measure(place: Place, sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    """Rates (bit/s of payload) and round trips (s) of every peer, one entry a round."""
    peers = [p for p in place.peers if installed(p)]
    hows = (OWN, ANY) if place.rate is None else (OWN,)
    rates = {how: {s: {p: [] for p in peers} for s in sizes} for how in hows}
    trips: dict[str, dict[str, list[float]]] = {how: {p: [] for p in peers} for how in hows}
    took: dict[tuple[str, int], float] = {}
    with ExitStack() as stack:
        pairs: dict[str, Pair] = {}
        for peer in peers:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            pairs[peer] = Pair(peer, place, folder)
            stack.callback(pairs[peer].close)
        for turn in range(rounds + 1):
            order = peers if turn % 2 else peers[::-1]
            for how, peer in product(hows, order):
                count = fitting(took.get((peer, 0)), MAX_TRIPS)
                trip = pairs[peer].ask("round trip", SMALL, count, how)
                took[peer, 0] = trip
                if turn:  # the first round warms up
                    trips[how][peer].append(trip)
            for how, size, peer in product(hows, sizes, order):
                count = fitting(took.get((peer, size)), MAX_PAYLOADS)
                seconds = pairs[peer].ask("throughput", size, count, how)
                took[peer, size] = seconds / count
                if turn:
                    rates[how][size][peer].append(8 * size * count / seconds)
            print(f"{place.name}: round {turn} of {rounds}", file=sys.stderr)
    return {"rates": rates, "trips": trips}


def fitting(seconds: float | None, most: int) -> int:
    """How often to do what took so long last time; a few times where that is not known."""
    return 4 if seconds is None else max(2, min(most, int(BUDGET_S / seconds)))


def paired(ours: list[float], theirs: list[float]) -> float:
    """The median of the ratios of one round each, which stand beside each other in time."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def describe(place: Place, found: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Figures of a link, and its part of the page."""
    figures: dict[str, Any] = {"throughput": {}, "round_trip": {}}
    page = f"## {place.name}\n"
    for how, sizes in found["rates"].items():
        entries = [_throughput_of(place, size, rates) for size, rates in sizes.items()]
        figures["throughput"][how] = entries
        peers = list(entries[0]["median_bit_s"])
        last = [key for key in ("carrier_to_raw", "carrier_to_link") if key in entries[0]]
        rows = [
            (
                _bytes(e["bytes"]),
                *(
                    f"{e['median_bit_s'][p] / 1e9:.3f} ({e['best_bit_s'][p] / 1e9:.3f})"
                    for p in peers
                ),
                *(f"{e[key]:.2f}" for key in last),
            )
            for e in entries
        ]
        page += f"\nGbit/s of payload, each end on {how}, median (best) of the rounds:\n\n"
        page += pipe_table(("payload", *peers, *(key.replace("_", " ") for key in last)), rows)
    trips = {how: _round_trip_of(taken) for how, taken in found["trips"].items()}
    figures["round_trip"] = trips
    peers = list(found["trips"][OWN])
    rows = [
        (
            how,
            *(f"{t['median_us'][p]} ({t['best_us'][p]})" for p in peers),
            f"{t['carrier_to_raw']:.2f}",
        )
        for how, t in trips.items()
    ]
    page += f"\nRound trip with {SMALL} B, µs, median (best) of the rounds' medians:\n\n"
    return figures, page + pipe_table(("each end on", *peers, "carrier to raw"), rows)


def _throughput_of(place: Place, size: int, rates: dict[str, list[float]]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "bytes": size,
        "median_bit_s": {p: round(median(r)) for p, r in rates.items()},
        "best_bit_s": {p: round(max(r)) for p, r in rates.items()},
        "carrier_to_raw": round(paired(rates["carrier"], rates["raw socket"]), 3),
    }
    if place.rate is not None:
        entry["carrier_to_link"] = round(median(rates["carrier"]) / place.rate, 3)
    return entry


def _round_trip_of(taken: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "median_us": {p: round(median(t) * 1e6, 1) for p, t in taken.items()},
        "best_us": {p: round(min(t) * 1e6, 1) for p, t in taken.items()},
        "carrier_to_raw": round(paired(taken["carrier"], taken["raw socket"]), 3),
    }


def _bytes(size: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or unit == "MiB":
            return f"{size} {unit}"
        size //= 1024
    raise AssertionError


def targets(links: dict[str, Any]) -> list[dict[str, Any]]:
    """Each target, the figure that is furthest from it, and whether it is met."""
    found: list[dict[str, Any]] = []

    def add(text: str, worst: float, *, least: float = 0, most: float = float("inf")) -> None:
        bound = f">= {least}" if least else f"<= {most}"
        met = least <= worst <= most
        found.append({"target": text, "bound": bound, "worst": worst, "met": met})

    for name, link in links.items():
        for how, entries in link["throughput"].items():
            large = [e for e in entries if e["bytes"] >= TARGET_FROM]
            for key, what in (("carrier_to_raw", "raw socket"), ("carrier_to_link", "link's rate")):
                if large and key in large[0]:
                    text = f"{name}, {how}: throughput from 256 KiB up, of the {what}"
                    add(text, min(e[key] for e in large), least=THROUGHPUT_TARGET)
        for how, trip in link["round_trip"].items():
            text = f"{name}, {how}: round trip, of the raw socket's"
            add(text, trip["carrier_to_raw"], most=ROUND_TRIP_TARGET)
    return found


def main(rounds: int, sizes: Sequence[int]) -> None:
    load = [round(x, 2) for x in os.getloadavg()]
    links: dict[str, Any] = {}
    pages: list[str] = []
    with places() as (found, reason):
        for place in found:
            measured = measure(place, sizes, rounds)
            links[place.name], page = describe(place, measured)
            pages.append(page)
    met = targets(links)
    missing = [p for p in PEERS if not installed(p)]
    document = {
        "sizes": list(sizes),
        "rounds": rounds,
        "shaped_bit_s": RATE,
        "emulated_rtt_s": RTT,
        "volatile": {
            "targets": met,
            "links": links,
            "not_installed": missing,
            "no_namespaces": reason,
            "load_before": load,
            **machine("torch", "numpy", "xxhash"),
        },
    }
    rows = [(t["target"], t["bound"], t["worst"], "yes" if t["met"] else "no") for t in met]
    head = (
        "# Transport\n\nThe carrier (48-byte header, checksum, deadlines) beside named peers, "
        f"{rounds} rounds in turn; load average before the run {load[0]}. The emulated link "
        f"gives {RATE / 1e9:g} Gbit/s and {RTT * 1e6:g} µs of round trip; the namespaces are "
        f"shaped to {RATE / 1e9:g} Gbit/s without delay, which leaves "
        f"{RATE * PAYLOAD_OF_PACKET / 1e9:.3f} for the payload of TCP.\n\n"
        + (f"No namespaces: {reason}\n\n" if reason else "")
        + (f"Not installed: {', '.join(missing)}\n\n" if missing else "")
        + pipe_table(("target", "bound", "ours", "met"), rows)
    )
    save("transport", document, "\n".join([head, *pages]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--end", choices=("near", "far"))
    parser.add_argument("--peer", choices=tuple(PEERS))
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--folder")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--rtt", type=float, default=0.0)
    given = parser.parse_args()
    if given.end is None:
        main(given.rounds, given.sizes)
    else:
        given.near = given.end == "near"
        given.link = LinkSpec(rate_bit_s=given.rate or None, rtt_s=given.rtt)
        serve(given)
