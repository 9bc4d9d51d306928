"""Mutants of what crosses the wire: streams of frames, and handshakes.

Each runs against the real thing, a receiving connection over a socket pair or a rank that accepts
its peers. A stream mutant is refused for one of the reasons it names, or is stale: counted, passed
over, never delivered. A handshake mutant is refused and the peer it stood in the way of is let in.
To add a mutant, add one decorated function; the tests and the command run over the registry.
"""

# ruff: noqa: D103  (a mutant's entry says what it does)

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import lru_cache
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from sembridge.contract import Consumer, Contract, Domain, Fact, Facts, Producer, Value
from sembridge.layout import Replicate
from sembridge.live import auth
from sembridge.live.auth import Credentials, Refusals, accept_peers, connect_peer, new_key
from sembridge.live.carrier import MAX_STALE, MAX_STALE_BYTES, Connection
from sembridge.live.faults import FrameRejected, LiveError
from sembridge.live.frame import DTYPE_CODES, HEADER, METADATA, Frame, Kind, describe, encode
from sembridge.live.mesh import listen
from sembridge.obligations import resolve_valid
from sembridge.plan import VALUE, Part, Tag
from sembridge.surfaces import Tokens

replace: Callable[..., Any] = msgspec.structs.replace

PATIENCE_S = 0.2
"""How long a receiver waits for a stream that stays open."""


# What is mutated --------------------------------------------------------------------------------


class Exchange(Struct, frozen=True, kw_only=True):
    """The frames that a receiver expects, one after the other, and their payloads."""

    name: str
    frames: tuple[Frame, ...]
    payloads: tuple[bytes, ...]

    def wire(self, at: int, *, sequence: int | None = None, **changed: Any) -> bytes:
        """Frame ``at`` as it is sent, with other fields or, under ``payload``, another payload."""
        payload = changed.pop("payload", self.payloads[at])
        frame = replace(self.frames[at], **changed)
        number = at if sequence is None else sequence
        return encode(frame, number, memoryview(payload)) + payload

    @property
    def valid(self) -> bytes:
        """The stream that nothing is wrong with."""
        return b"".join(self.wire(i) for i in range(len(self.frames)))


@lru_cache(maxsize=1)
def exchanges() -> dict[str, Exchange]:
    """Two tokens' worth of whole values, slices and tokens, as one contract describes them."""
    ob = resolve_valid(
        Contract(
            name="frames",
            value=Value(kind="logits", shape=(2, 8), dtype="float32"),
            domains={"a": Domain(stack="cann"), "b": Domain(stack="cuda")},
            producers=(Producer(id="p", domain="a"),),
            consumers=(Consumer(id="c", domain="b", source="p", demanded=True),),
            placement=Replicate(),
            facts=Facts(surface=Fact(value=Tokens(), origin="runtime")),
        )
    )
    found: dict[str, Exchange] = {}
    for name, surface, part in (
        ("value", VALUE, None),
        ("slice", VALUE, Part(index=1, of=2)),
        ("tokens", "tokens", None),
    ):
        frames = tuple(
            describe(ob, surface, part, 2, Tag(request="r", token=t, microbatch=1, epoch=5))
            for t in (7, 8)
        )
        payloads = tuple(
            bytes((16 * i + j) % 251 for j in range(f.length)) for i, f in enumerate(frames, 1)
        )
        found[name] = Exchange(name=name, frames=frames, payloads=payloads)
    return found


class Stream(Struct, frozen=True):
    """What is written in place of the valid stream; ``stays`` leaves the connection open."""

    data: bytes
    stays: bool = False


class Fate(Struct, frozen=True, kw_only=True):
    """What became of a mutant: ``reason`` is the error's field or code, empty without an error.

    ``delivered`` frames were handed out, ``wrong`` says whether any of them was not what its
    receiver expects, ``stale`` were passed over.
    """

    reason: str
    delivered: int
    stale: int = 0
    wrong: bool = False


class FrameMutant(Struct, frozen=True, kw_only=True):
    """``refused`` are the reasons for which it may end, none where it is ``stale`` frames only."""

    name: str
    on: str
    says: str
    refused: tuple[str, ...]
    stale: int
    fates: Callable[[], Iterator[tuple[str, Fate]]]

    def as_it_should(self, fate: Fate) -> bool:
        """Whether a mutant of this kind ended as the entry says."""
        if fate.wrong or fate.stale < self.stale:
            return False
        return fate.reason in self.refused if self.refused else not fate.reason


MUTANTS: dict[str, FrameMutant] = {}

Make = Callable[[Exchange], Iterator[bytes | Stream]]


def _stream(says: str, *, refused: str = "", stale: int = 0, name: str = "") -> Any:
    def register(make: Make) -> Make:
        def fates() -> Iterator[tuple[str, Fate]]:
            for exchange in exchanges().values():
                for made in make(exchange):
                    stream = made if isinstance(made, Stream) else Stream(made)
                    yield exchange.name, receive(exchange, stream)

        _add(name or make.__name__, "stream", says, refused, stale, fates)
        return make

    return register


def _handshake(says: str, *, refused: str) -> Any:
    def register(play: Callable[[], Fate]) -> Callable[[], Fate]:
        _add(play.__name__, "handshake", says, refused, 0, lambda: iter([("handshake", play())]))
        return play

    return register


def _add(
    name: str,
    on: str,
    says: str,
    refused: str,
    stale: int,
    fates: Callable[[], Iterator[tuple[str, Fate]]],
) -> None:
    name = name.replace("_", "-")
    MUTANTS[name] = FrameMutant(
        name=name, on=on, says=says, refused=tuple(refused.split()), stale=stale, fates=fates
    )


def receive(exchange: Exchange, stream: Stream) -> Fate:
    """Write a stream to a socket pair, and receive the exchange's frames from the other end."""
    writer, reader = socket.socketpair()
    connection = Connection(reader, local="b/0", peer="a/0")
    delivered, wrong, reason = 0, False, ""
    try:
        with writer:
            writer.sendall(stream.data)
            if not stream.stays:
                writer.shutdown(socket.SHUT_WR)
            for frame, payload in zip(exchange.frames, exchange.payloads, strict=True):
                into = bytearray(frame.length)
                connection.receive(frame, memoryview(into), deadline=monotonic() + PATIENCE_S)
                delivered += 1
                wrong |= bytes(into) != payload
    except LiveError as error:
        reason = error.field if isinstance(error, FrameRejected) else error.code
    finally:
        connection.close()
    return Fate(reason=reason, delivered=delivered, stale=connection.traffic.stale, wrong=wrong)


# Streams: cut and padded ------------------------------------------------------------------------


@_stream("nothing is sent, and the connection closed", refused="peer-closed")
def closed(ex: Exchange) -> Iterator[bytes]:
    yield b""
    yield ex.wire(0)


@_stream("nothing more is sent, and the connection stays open", refused="deadline")
def silent(ex: Exchange) -> Iterator[Stream]:
    yield Stream(b"", stays=True)
    yield Stream(ex.wire(0)[: HEADER.size + 4], stays=True)


@_stream("the connection closes within a frame", refused="peer-closed")
def truncated(ex: Exchange) -> Iterator[bytes]:
    whole = ex.wire(0)
    return (whole[:n] for n in range(1, len(whole)))


@_stream("the header promises more than is due", refused="length")
def oversize(ex: Exchange) -> Iterator[bytes]:
    due = ex.frames[0].length
    for length in (due + 1, 2 * due, 2**31, 2**40, 2**63):
        head = encode(replace(ex.frames[0], length=length), 0, memoryview(ex.payloads[0]))
        yield head + bytes(2 * due)


@_stream("the header promises less than is due", refused="length")
def undersize(ex: Exchange) -> Iterator[bytes]:
    for length in (0, 1, ex.frames[0].length - 1):
        yield ex.wire(0, length=length, payload=ex.payloads[0][:length])


@_stream("a byte is missing within the payload, and the next frame follows", refused="checksum")
def lost_byte(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(0)[:-1] + ex.wire(1)


@_stream("a byte too many follows the payload", refused="magic")
def added_byte(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(0) + b"\0" + ex.wire(1)


# Streams: another frame -------------------------------------------------------------------------


def _others(field: str, *values: Callable[[Frame], int]) -> Make:
    def make(ex: Exchange) -> Iterator[bytes]:
        return (ex.wire(0, **{field: value(ex.frames[0])}) for value in values)

    return make


_stream("the dtype is another one", refused="dtype", name="wrong-dtype")(
    _others("dtype", lambda f: f.dtype % (len(DTYPE_CODES) - 1) + 1, lambda f: 255)
)
_stream("the frame is of another kind", refused="kind", name="wrong-kind")(
    _others(
        "kind",
        lambda f: Kind.RESULT if f.kind is Kind.VALUE else Kind.VALUE,
        lambda f: Kind.CONTROL,
        lambda f: 0,
        lambda f: 99,
    )
)
_stream("the frame is another edge's", refused="edge", name="wrong-edge")(
    _others("edge", lambda f: f.edge - 1, lambda f: f.edge + 1)
)
_stream("the frame is another request's", refused="request", name="other-request")(
    _others("request", lambda f: f.request ^ 1, lambda f: 0)
)
_stream("the frame is a later token's", refused="token", name="future-token")(
    _others("token", lambda f: f.token + 1, lambda f: 2**62)
)
_stream("the frame is a later microbatch's", refused="microbatch", name="future-microbatch")(
    _others("microbatch", lambda f: f.microbatch + 1)
)
_stream("the frame is of a later epoch", refused="epoch", name="future-epoch")(
    _others("epoch", lambda f: f.epoch + 1, lambda f: 2**32 - 1)
)


@_stream("the slice's metadata describe another shape or slice", refused="metadata")
def wrong_shape(ex: Exchange) -> Iterator[bytes]:
    metadata = ex.frames[0].metadata
    if metadata:
        fields = METADATA.unpack(metadata)
        for i in range(len(fields)):
            other = METADATA.pack(*(f + (i == j) for j, f in enumerate(fields)))
            yield ex.wire(0, metadata=other)


@_stream("metadata where none is due, and none where they are", refused="metadata")
def unasked_metadata(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(0, metadata=b"" if ex.frames[0].metadata else bytes(METADATA.size))


@_stream("the metadata's size is that of no format", refused="metadata")
def odd_metadata(ex: Exchange) -> Iterator[bytes]:
    for size in (1, METADATA.size - 1, METADATA.size + 1, 255):
        yield ex.wire(0, metadata=bytes(size))


@_stream("another format's magic or version", refused="magic")
def wrong_magic(ex: Exchange) -> Iterator[bytes]:
    whole = ex.wire(0)
    yield b"\0\0" + whole[2:]
    yield whole[:2] + b"\2" + whole[3:]
    yield b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n" + whole


# Streams: stale, out of order -------------------------------------------------------------------


def _stale(says: str, **older: int) -> None:
    def make(ex: Exchange) -> Iterator[bytes]:
        changed = {key: getattr(ex.frames[0], key) - by for key, by in older.items()}
        old = ex.wire(0, sequence=0, payload=bytes(ex.frames[0].length), **changed)
        yield old + ex.wire(0, sequence=1) + ex.wire(1, sequence=2)

    _stream(says, stale=1, name="stale-" + "-".join(older))(make)


_stale("an earlier token's frame comes first", token=1)
_stale("an earlier microbatch's frame comes first", microbatch=1)
_stale("a frame of an earlier epoch comes first", epoch=1)
_stale("a frame of an earlier epoch, and of another request, comes first", epoch=2, request=1)


@_stream("a stale frame has the place of the due one", refused="peer-closed", stale=1)
def stale_instead(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(0, epoch=ex.frames[0].epoch - 1)


@_stream("nothing but stale frames", refused="tag", stale=MAX_STALE)
def stale_flood(ex: Exchange) -> Iterator[bytes]:
    yield b"".join(ex.wire(0, sequence=i, epoch=1) for i in range(MAX_STALE + 1))


@_stream("a stale frame is larger than what is passed over", refused="epoch")
def stale_oversize(ex: Exchange) -> Iterator[bytes]:
    stale = replace(ex.frames[0], epoch=1, length=MAX_STALE_BYTES + 1)
    yield encode(stale, 0, memoryview(b"")) + bytes(1000)


@_stream("a stale frame is damaged as well", refused="checksum")
def stale_damaged(ex: Exchange) -> Iterator[bytes]:
    stale = ex.wire(0, epoch=1)
    yield stale[:-1] + bytes([stale[-1] ^ 1]) + ex.wire(0, sequence=1)


@_stream("a frame comes twice", refused="sequence")
def duplicated(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(0) + ex.wire(0) + ex.wire(1)


@_stream("a frame comes twice, numbered as if it were new", stale=1)
def duplicated_renumbered(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(0) + ex.wire(0, sequence=1) + ex.wire(1, sequence=2)


@_stream("two frames change places", refused="sequence")
def reordered(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(1) + ex.wire(0)


@_stream("two frames change places and numbers", refused="token")
def reordered_renumbered(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(1, sequence=0) + ex.wire(0, sequence=1)


@_stream("a frame is left out", refused="sequence")
def skipped(ex: Exchange) -> Iterator[bytes]:
    yield ex.wire(1)


@_stream("a frame carries the next one's payload", refused="checksum")
def swapped_payloads(ex: Exchange) -> Iterator[bytes]:
    head = ex.wire(0)[: -ex.frames[0].length]
    yield head + ex.payloads[1]


@_stream("a frame begins within another", refused="checksum")
def interleaved(ex: Exchange) -> Iterator[bytes]:
    whole = ex.wire(0)
    yield whole[:-4] + ex.wire(1) + whole[-4:]


# Streams: single flipped bits -------------------------------------------------------------------

FIELDS = {
    "magic": (0, 3),
    "kind": (3, 4),
    "dtype": (4, 5),
    "metadata": (5, 6),
    "edge": (6, 8),
    "checksum": (8, 12),
    "sequence": (12, 16),
    "request": (16, 24),
    "token": (24, 32),
    "microbatch": (32, 36),
    "epoch": (36, 40),
    "length": (40, 48),
}
"""Bytes of the header by field; the version stands with the magic."""


def _flip(field: str, start: int, stop: int) -> None:
    def make(ex: Exchange) -> Iterator[bytes]:
        return _flipped(ex.valid, start, stop)

    # What looks older is read to its end, and found to be damaged.
    older = " checksum" if field in ("token", "microbatch", "epoch") else ""
    _stream(f"a bit of the header's {field} flips", refused=field + older, name=f"flipped-{field}")(
        make
    )


def _flipped(data: bytes, start: int, stop: int) -> Iterator[bytes]:
    for bit in range(8 * start, 8 * stop):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


for _field, _place in FIELDS.items():
    _flip(_field, *_place)


@_stream("a bit of the slice's metadata flips", refused="metadata")
def flipped_shape(ex: Exchange) -> Iterator[bytes]:
    return _flipped(ex.valid, HEADER.size, HEADER.size + len(ex.frames[0].metadata))


@_stream("a bit of the payload flips", refused="checksum")
def flipped_payload(ex: Exchange) -> Iterator[bytes]:
    stop = len(ex.wire(0))
    return _flipped(ex.valid, stop - ex.frames[0].length, stop)


# Handshakes -------------------------------------------------------------------------------------

KEY = Credentials(key=new_key())
OWN, PEER, OTHER = "b/0", "a/0", "a/1"
WAIT_S = 10.0


def _at_door(attack: Callable[[socket.socket], object], *, first: bool = True) -> Fate:
    """A stranger attacks a rank that awaits two peers, before or after the first has come.

    Wrong is whatever lets anybody in but the two, or keeps one of them out.
    """
    refusals = Refusals()
    listener = listen()
    address = listener.getsockname()
    with ThreadPoolExecutor(1) as threads:
        door = threads.submit(
            accept_peers,
            listener,
            OWN,
            (PEER, OTHER),
            KEY,
            deadline=monotonic() + WAIT_S,
            refusals=refusals,
        )
        honest: list[socket.socket] = []

        def come(name: str) -> None:
            deadline = monotonic() + WAIT_S
            honest.append(connect_peer(address, name, OWN, KEY, deadline=deadline))

        try:
            if not first:
                come(PEER)
            with socket.create_connection(address, timeout=WAIT_S) as stranger:
                attack(stranger)
                for name in (PEER, OTHER)[not first :]:
                    come(name)
                proven = door.result()
            came = [sock.getsockname() for sock in honest]
            let_in = [proven[name].getpeername() for name in (PEER, OTHER)]
            for sock in proven.values():
                sock.close()
        finally:
            for sock in honest:
                sock.close()
    return Fate(
        reason=" ".join(refusals.by_code),
        delivered=0,
        wrong=came != let_in or refusals.count != 1,
    )


def _until_hung_up(sock: socket.socket) -> bytes:
    """What comes until the other end hangs up, be it with a reset."""
    got = b""
    try:
        while piece := sock.recv(4096):
            got += piece
    except OSError:
        pass
    return got


def _hear(sock: socket.socket, size: int) -> bytes:
    return sock.recv(size, socket.MSG_WAITALL)


@_handshake("a peer sends frames, and proves nothing", refused="refused")
def unauthenticated() -> Fate:
    def attack(sock: socket.socket) -> None:
        sock.sendall(exchanges()["value"].valid)
        _until_hung_up(sock)

    return _at_door(attack)


@_handshake("a peer connects and says nothing", refused="peer-closed deadline")
def mute() -> Fate:
    return _at_door(lambda sock: None)


@_handshake("a peer hangs up within its proof", refused="peer-closed")
def half_a_proof() -> Fate:
    def attack(sock: socket.socket) -> None:
        sock.sendall(auth.hello(PEER) + bytes(7))
        _hear(sock, auth.HELLO_BYTES)
        sock.shutdown(socket.SHUT_WR)
        _until_hung_up(sock)

    return _at_door(attack)


def _claim(name: str, credentials: Credentials) -> Callable[[socket.socket], None]:
    def attack(sock: socket.socket) -> None:
        ours = auth.hello(name)
        sock.sendall(ours)
        theirs = _hear(sock, auth.HELLO_BYTES)
        sock.sendall(auth.proof(credentials.key, b"connects", ours, theirs))
        assert not _until_hung_up(sock), "a proof for who gave none"

    return attack


@_handshake("a peer has another run's key", refused="refused")
def wrong_key() -> Fate:
    return _at_door(_claim(PEER, Credentials(key=new_key())))


@_handshake("a peer has the key, and a name that nobody awaits", refused="refused")
def wrong_name() -> Fate:
    return _at_door(_claim("a/9", KEY))


@_handshake("a peer goes by the name of the rank that it connects to", refused="refused")
def own_name() -> Fate:
    return _at_door(_claim(OWN, KEY))


@_handshake("a second connection of a peer that is there already", refused="refused")
def second_connection() -> Fate:
    return _at_door(_claim(PEER, KEY), first=False)


@_handshake("a name that is no text", refused="refused")
def garbled_name() -> Fate:
    def attack(sock: socket.socket) -> None:
        sock.sendall(auth.MAGIC + b"\xff" * (auth.HELLO_BYTES - len(auth.MAGIC)))
        _until_hung_up(sock)

    return _at_door(attack)


@_handshake("a proof made for the other role", refused="refused")
def wrong_role() -> Fate:
    def attack(sock: socket.socket) -> None:
        ours = auth.hello(PEER)
        sock.sendall(ours)
        theirs = _hear(sock, auth.HELLO_BYTES)
        sock.sendall(hmac.digest(KEY.key, b"accepts" + ours + theirs, "sha256"))
        _until_hung_up(sock)

    return _at_door(attack)


@_handshake("what an honest peer once said is said again", refused="refused")
def replayed() -> Fate:
    said = _recorded()

    def attack(sock: socket.socket) -> None:
        sock.sendall(said)
        _until_hung_up(sock)

    return _at_door(attack)


def _recorded() -> bytes:
    """All that an honest peer says to an honest rank."""
    said = bytearray()

    def answer(sock: socket.socket) -> None:
        theirs = _hear(sock, auth.HELLO_BYTES)
        ours = auth.hello(OWN)
        sock.sendall(ours)
        said.extend(theirs + _hear(sock, auth.MAC_BYTES))
        sock.sendall(auth.proof(KEY.key, b"accepts", ours, theirs))

    error = _stand_in(answer)
    assert error is None, error
    return bytes(said)


@_handshake("a rank's own hello comes back to it", refused="refused")
def reflected() -> Fate:
    def attack(sock: socket.socket) -> None:
        sock.sendall(_hear(sock, auth.HELLO_BYTES))
        _until_hung_up(sock)

    return _at_door(attack)


def _stand_in(answer: Callable[[socket.socket], object]) -> BaseException | None:
    """A peer connects to what answers in a rank's place; why it did not go through with it."""
    with listen() as listener, ThreadPoolExecutor(1) as threads:
        door = threads.submit(
            connect_peer, listener.getsockname(), PEER, OWN, KEY, deadline=monotonic() + WAIT_S
        )
        sock, _ = listener.accept()
        with closing(sock):
            sock.settimeout(WAIT_S)
            answer(sock)
        error = door.exception()
        if error is None:
            door.result().close()
    return error


def _behind_door(answer: Callable[[socket.socket], object]) -> Fate:
    """A rank connects to one that is not who it should be; wrong is whatever it believes."""

    def attack(sock: socket.socket) -> None:
        answer(sock)
        _until_hung_up(sock)

    error = _stand_in(attack)
    code = error.code if isinstance(error, LiveError) else ""
    return Fate(reason=code, delivered=0, wrong=not code)


@_handshake("a rank without the key accepts, and guesses its proof", refused="refused")
def impostor() -> Fate:
    def answer(sock: socket.socket) -> None:
        _hear(sock, auth.HELLO_BYTES)
        sock.sendall(auth.hello(OWN) + bytes(auth.MAC_BYTES))

    return _behind_door(answer)


@_handshake("a rank without the key accepts, and gives the proof back", refused="refused")
def reflected_proof() -> Fate:
    def answer(sock: socket.socket) -> None:
        _hear(sock, auth.HELLO_BYTES)
        sock.sendall(auth.hello(OWN))
        sock.sendall(_hear(sock, auth.MAC_BYTES))

    return _behind_door(answer)


# All of them ------------------------------------------------------------------------------------


class Tally(Struct, frozen=True, kw_only=True):
    """What became of all mutants of one entry: how many, by reason, and how many went wrong."""

    mutant: FrameMutant
    made: int
    reasons: dict[str, int]
    stale: int
    amiss: int


def tally(mutant: FrameMutant) -> Tally:
    """Make every mutant of an entry, and see what becomes of it."""
    fates = [fate for _, fate in mutant.fates()]
    reasons: dict[str, int] = {}
    for fate in fates:
        reasons[fate.reason or "passed over"] = reasons.get(fate.reason or "passed over", 0) + 1
    return Tally(
        mutant=mutant,
        made=len(fates),
        reasons=dict(sorted(reasons.items())),
        stale=sum(fate.stale for fate in fates),
        amiss=sum(not mutant.as_it_should(fate) for fate in fates),
    )


def tallies(
    names: Sequence[str] = (), *, progress: Callable[[int, int], None] | None = None
) -> list[Tally]:
    """The tallies of some entries, all by default."""
    found: list[Tally] = []
    chosen = names or list(MUTANTS)
    for name in chosen:
        found.append(tally(MUTANTS[name]))
        if progress is not None:
            progress(len(found), len(chosen))
    return found
