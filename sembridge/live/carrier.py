"""Persistent connections between two domains: framed, bounded, and never later than a deadline.

A connection has one user at each end. Sending never waits for the peer to read: what the socket
does not take at once goes to a queue of two frames and a thread that empties it. Receiving is
inline, into memory that the caller owns, and only of the frame that the caller expects.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Condition, Thread
from time import monotonic, monotonic_ns, sleep

from msgspec import Struct
from msgspec.structs import replace
from xxhash import xxh3_64

from sembridge.live.faults import DeadlineExceeded, FrameRejected, LiveError, PeerClosed
from sembridge.live.frame import (
    Frame,
    decode,
    encode,
    is_stale,
    mismatch,
    recognise,
    with_metadata,
)
from sembridge.live.link import Link, wait_until
from sembridge.plan import Tag
from sembridge.wire import HEADER_BYTES, SLICE_METADATA_BYTES

QUEUE_DEPTH = 2
"""Frames that wait for the socket (§5.1)."""

CHUNK = 512 * 1024
"""Bytes received before they are summed: still in the cache."""

MAX_STALE = 64
"""Stale frames that one receive passes over."""

MAX_STALE_BYTES = 2**20
"""Payload of a stale frame that is passed over although it is larger than the expected one's."""

_PATIENCE_S = 0.05
"""How long a system call blocks before deadlines are looked at."""

_AT_ONCE = int(socket.MSG_DONTWAIT)

NOTHING = memoryview(b"")


class Traffic(Struct, kw_only=True):
    """What went over a connection; bytes include headers and metadata."""

    frames_sent: int = 0
    bytes_sent: int = 0
    frames_received: int = 0
    bytes_received: int = 0
    stale: int = 0


class _Outgoing(Struct, frozen=True):
    buffers: list[memoryview]
    deadline: float
    start: int
    done: Callable[[], None] | None


class Connection:
    """One authenticated, connected stream socket between a local rank and a peer.

    ``link`` delays what is sent as a slower link would.
    """

    def __init__(
        self, sock: socket.socket, *, local: str = "", peer: str = "", link: Link | None = None
    ) -> None:
        self._sock = sock
        self.local, self.peer = local, peer
        self.traffic = Traffic()
        self._link = link
        # A TLS socket cannot be written by one thread while another reads it.
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._sequence_out = self._sequence_in = 0
        self._bytes = bytearray(HEADER_BYTES)
        self._head = memoryview(self._bytes)
        self._metadata = memoryview(bytearray(SLICE_METADATA_BYTES))
        self._scratch: memoryview | None = None
        self._queue: Queue[_Outgoing | None] = Queue(QUEUE_DEPTH)
        self._pending = 0
        self._written = Condition()
        self._sender: Thread | None = None
        self._error: LiveError | None = None
        self._closed = False
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls:
            sock.settimeout(_PATIENCE_S)
        else:
            sock.setblocking(True)
            patience = struct.pack("@ll", 0, int(_PATIENCE_S * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)

    # sending ---------------------------------------------------------------------------------

    def send(
        self,
        frame: Frame,
        payload: memoryview,
        *,
        deadline: float,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Send a frame; ``payload`` may not change until ``done`` is called or :meth:`flush` ends.

        ``deadline`` is a :func:`time.monotonic` moment.

        Raises:
            DeadlineExceeded: the queue stayed full.
            PeerClosed: the peer is gone, or an earlier frame could not be sent.
        """
        if payload.nbytes != frame.length:
            raise self._fail(
                FrameRejected("length", f"{payload.nbytes} bytes to send, not {frame.length}")
            )
        if self._error is not None:
            raise self._error
        head = encode(frame, self._sequence_out, payload)
        size = len(head) + frame.length
        self._sequence_out += 1
        self.traffic.frames_sent += 1
        self.traffic.bytes_sent += size
        sent = start = 0
        if self._link is not None:
            start = self._link.reserve(size)
        elif not (self._pending or self._tls):
            try:
                sent = self._sock.sendmsg((head, payload), (), _AT_ONCE)
            except BlockingIOError:
                pass
            except OSError as error:
                raise self._fail(self._gone(error)) from error
        if sent < size:
            outgoing = _Outgoing(_after((memoryview(head), payload), sent), deadline, start, done)
            (self._write if self._tls else self._enqueue)(outgoing)
        elif done is not None:
            done()

    def _enqueue(self, outgoing: _Outgoing) -> None:
        if self._sender is None:
            self._sender = Thread(target=self._send_queued, daemon=True, name=f"to {self.peer}")
            self._sender.start()
        with self._written:
            self._pending += 1
        try:
            self._queue.put(outgoing, timeout=max(0.0, outgoing.deadline - monotonic()))
        except Full:
            with self._written:
                self._pending -= 1
            raise self._fail(self._late("sending: the queue is full")) from None

    def _send_queued(self) -> None:
        while (outgoing := self._queue.get()) is not None:
            if self._error is None:
                with suppress(LiveError):
                    self._write(outgoing)
            with self._written:
                self._pending -= 1
                self._written.notify_all()

    def _write(self, outgoing: _Outgoing) -> None:
        left = outgoing.buffers
        if self._link is None:
            self._write_all(left, outgoing.deadline)
        else:
            size = sum(b.nbytes for b in left)
            for begin, end, arrival in self._link.arrivals(outgoing.start, size):
                self._wait_until(arrival, outgoing.deadline)
                self._write_all(_between(outgoing.buffers, begin, end), outgoing.deadline)
        if outgoing.done is not None:
            outgoing.done()

    def _wait_until(self, arrival_ns: int, deadline: float) -> None:
        """Wait for an arrival, unless the connection ends or is late first."""
        while arrival_ns - monotonic_ns() > _PATIENCE_S * 1e9:
            sleep(_PATIENCE_S / 2)
            self._check()
            if monotonic() > deadline:
                raise self._fail(self._late("sending: the link is too slow"))
        wait_until(arrival_ns)

    def _write_all(self, buffers: list[memoryview], deadline: float) -> None:
        while buffers:
            try:
                sent = self._sock.send(buffers[0]) if self._tls else self._sock.sendmsg(buffers)
            except (BlockingIOError, TimeoutError, ssl.SSLWantWriteError):
                sent = 0
            except OSError as error:
                raise self._fail(self._gone(error)) from error
            buffers = _after(buffers, sent)
            if buffers and monotonic() > deadline:
                raise self._fail(self._late("sending: the peer does not read"))

    def flush(self, deadline: float) -> None:
        """Wait until every queued payload has been handed to the socket."""
        if self._pending:
            with self._written:
                if not self._written.wait_for(
                    lambda: not self._pending or self._error is not None,
                    timeout=max(0.0, deadline - monotonic()),
                ):
                    raise self._fail(self._late("sending: the peer does not read"))
        self._check()

    # receiving -------------------------------------------------------------------------------

    def receive(
        self,
        expected: Frame,
        into: memoryview,
        *,
        deadline: float,
        tag: Tag | None = None,
    ) -> None:
        """Receive the expected frame's payload into ``into``, which has exactly its length.

        Everything in the header is compared before a byte of payload is read. Stale frames are
        counted and passed over; any other frame ends the connection. After an error the bytes of
        ``into`` mean nothing.

        Raises:
            FrameRejected: another frame than the expected one, or a damaged one.
            DeadlineExceeded: it did not arrive whole in time.
            PeerClosed: the peer is gone.
        """
        assert into.nbytes == expected.length
        if self._error is not None:
            raise self._error
        try:
            for _ in range(MAX_STALE):
                n = self._read_some(self._head, deadline)
                if n < HEADER_BYTES:
                    self._read(self._head[n:], deadline)
                seen = recognise(self._bytes, expected, self._sequence_in)
                if seen is not None:
                    break
                self._pass_over(expected, deadline)
            else:
                raise FrameRejected("tag", f"more than {MAX_STALE} stale frames")
            checksum, digest = seen
            self._sequence_in += 1
            if expected.metadata:
                digest.update(self._expect_metadata(expected, deadline))
            while left := into.nbytes:
                piece = into if left <= CHUNK else into[:CHUNK]
                n = self._read_some(piece, deadline)
                digest.update(piece if n == piece.nbytes else piece[:n])
                into = into[n:]
            self._verify(checksum, digest, expected)
        except LiveError as error:
            placed = error.placed(local=self.local, peer=self.peer, edge=expected.edge, tag=tag)
            raise self._fail(placed) from error

    def _pass_over(self, expected: Frame, deadline: float) -> None:
        """Read to the end of a frame that is not the expected one, and that has to be stale."""
        header = decode(self._head)
        metadata = b""
        if header.metadata_length:
            self._read(self._metadata, deadline)
            metadata = bytes(self._metadata)
        if header.sequence != self._sequence_in & 0xFFFFFFFF:
            raise FrameRejected("sequence", f"{header.sequence}, expected {self._sequence_in}")
        self._sequence_in += 1
        frame = with_metadata(header, metadata)
        wrong = mismatch(frame, expected)
        assert wrong is not None
        if not is_stale(frame, expected) or frame.length > max(expected.length, MAX_STALE_BYTES):
            raise FrameRejected(*wrong)
        if self._scratch is None:
            self._scratch = memoryview(bytearray(64 * 1024))
        left = frame.length
        while left:
            n = self._read_some(self._scratch[:left], deadline)
            header.digest.update(self._scratch[:n])
            left -= n
        self._verify(header.checksum, header.digest, frame)
        self.traffic.stale += 1

    def _expect_metadata(self, expected: Frame, deadline: float) -> bytes:
        self._read(self._metadata, deadline)
        metadata = bytes(self._metadata)
        if (wrong := mismatch(replace(expected, metadata=metadata), expected)) is not None:
            raise FrameRejected(*wrong)
        return metadata

    def _verify(self, checksum: int, digest: xxh3_64, frame: Frame) -> None:
        if digest.intdigest() & 0xFFFFFFFF != checksum:
            raise FrameRejected("checksum", "the frame was damaged on its way")
        self.traffic.frames_received += 1
        self.traffic.bytes_received += HEADER_BYTES + len(frame.metadata) + frame.length

    def _read(self, into: memoryview, deadline: float) -> None:
        got, size = self._read_some(into, deadline), into.nbytes
        while got < size:
            got += self._read_some(into[got:], deadline)

    def _read_some(self, into: memoryview, deadline: float) -> int:
        """At least one byte; the deadline is looked at whenever that took more than one call."""
        while True:
            try:
                n = self._sock.recv_into(into)
            except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
                n = -1
            except OSError as error:
                raise self._gone(error) from error
            if n == into.nbytes:
                return n
            if n == 0:
                raise PeerClosed("closed the connection")
            if (left := deadline - monotonic()) <= 0:
                raise DeadlineExceeded("receiving: nothing, or not enough, arrived in time")
            if n > 0:
                return n
            if not self._tls:
                _poll(self._sock, left)

    # the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close at once; whoever waits on either end gets :class:`PeerClosed`."""
        if self._closed:
            return
        self._closed = True
        self._error = self._error or PeerClosed("closed here", local=self.local, peer=self.peer)
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        if self._sender is not None:
            with suppress(Empty):
                while True:
                    self._queue.get_nowait()
            self._queue.put(None)
            self._sender.join()
        self._sock.close()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _fail(self, error: LiveError) -> LiveError:
        """Remember the first error; the connection is of no use after it."""
        self._error = self._error or error
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with self._written:
            self._written.notify_all()
        return error

    def _gone(self, error: OSError) -> PeerClosed:
        return PeerClosed(f"{error.strerror or error}", local=self.local, peer=self.peer)

    def _late(self, message: str) -> DeadlineExceeded:
        return DeadlineExceeded(message, local=self.local, peer=self.peer)


def _after(buffers: Sequence[memoryview], sent: int) -> list[memoryview]:
    left: list[memoryview] = []
    for buffer in buffers:
        if sent >= buffer.nbytes:
            sent -= buffer.nbytes
        else:
            left.append(buffer[sent:])
            sent = 0
    return left


def _between(buffers: Sequence[memoryview], begin: int, end: int) -> list[memoryview]:
    chosen: list[memoryview] = []
    offset = 0
    for buffer in buffers:
        piece = buffer[max(0, begin - offset) : max(0, end - offset)]
        if piece.nbytes:
            chosen.append(piece)
        offset += buffer.nbytes
    return chosen


def _poll(sock: socket.socket, seconds: float) -> None:
    poll = select.poll()
    try:
        poll.register(sock, select.POLLIN)
    except ValueError:  # closed by another thread just now, as the next read will find
        return
    poll.poll(min(seconds, 3600.0) * 1e3)
