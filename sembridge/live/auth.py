"""Who may connect: a mutual HMAC challenge with a key of this run alone, and TLS where asked.

Neither end says anything that depends on the key until the other has sent a fresh nonce, and the
one that connected proves itself first. Messages have fixed sizes.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep

from msgspec import Struct, field

from sembridge.errors import BadInput
from sembridge.live.faults import DeadlineExceeded, LiveError, PeerClosed, PeerRefused

MAGIC = b"SBH1"
NAME_BYTES = 60
NONCE_BYTES = 32
HELLO_BYTES = len(MAGIC) + NAME_BYTES + NONCE_BYTES
MAC_BYTES = 32
KEY_BYTES = 32

HANDSHAKE_S = 2.0
"""How long a stranger may take to prove itself."""

MAX_STRANGERS = 32
"""Unproven connections at one time; more are closed unheard."""


class Tls(Struct, frozen=True, kw_only=True):
    """Paths of this domain's certificate and key, and of the authority that signs the peers'."""

    certificate: str
    key: str
    authority: str

    def wrap(self, sock: socket.socket, *, server: bool) -> ssl.SSLSocket:
        """Wrap a connected socket; both ends show a certificate.

        Raises:
            BadInput: a certificate or key that cannot be read.
        """
        purpose = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authority)
        except (OSError, ssl.SSLError) as error:
            raise BadInput(f"TLS files cannot be read: {error}") from error
        return context.wrap_socket(sock, server_side=server)


class Credentials(Struct, frozen=True, kw_only=True):
    """What proves membership of a run."""

    key: bytes
    tls: Tls | None = None


def new_key() -> bytes:
    """A key for one run."""
    return secrets.token_bytes(KEY_BYTES)


def hello(name: str) -> bytes:
    """What both ends say first: the protocol, the rank's name, and a fresh nonce."""
    encoded = name.encode()
    if not 0 < len(encoded) <= NAME_BYTES or b"\0" in encoded:
        raise BadInput(f"a rank's name has 1 to {NAME_BYTES} bytes: {name!r}")
    return MAGIC + encoded.ljust(NAME_BYTES, b"\0") + secrets.token_bytes(NONCE_BYTES)


def _name(hello: bytes) -> str:
    if not hello.startswith(MAGIC):
        raise PeerRefused("does not speak this protocol")
    encoded = hello[len(MAGIC) : len(MAGIC) + NAME_BYTES].rstrip(b"\0")
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise PeerRefused("a name that is no text") from None


def proof(key: bytes, role: bytes, ours: bytes, theirs: bytes) -> bytes:
    """What one end sends to show that it has the key: a MAC of its role and both hellos."""
    return hmac.digest(key, role + ours + theirs, "sha256")


def _receive(sock: socket.socket, size: int, deadline: float) -> bytes:
    got = bytearray()
    while len(got) < size:
        sock.settimeout(max(0.001, deadline - monotonic()))
        try:
            piece = sock.recv(size - len(got))
        except TimeoutError:
            raise DeadlineExceeded("the peer did not prove itself in time") from None
        except OSError as error:
            raise PeerClosed(f"{error.strerror or error}") from error
        if not piece:
            raise PeerClosed("closed the connection instead of proving itself")
        got += piece
        if monotonic() > deadline:
            raise DeadlineExceeded("the peer did not prove itself in time")
    return bytes(got)


def _prove(sock: socket.socket, role: bytes, ours: bytes, theirs: bytes, key: bytes) -> None:
    sock.sendall(proof(key, role, ours, theirs))


def _verify(
    sock: socket.socket, role: bytes, theirs: bytes, ours: bytes, key: bytes, deadline: float
) -> None:
    given = _receive(sock, MAC_BYTES, deadline)
    if not hmac.compare_digest(given, proof(key, role, theirs, ours)):
        raise PeerRefused("the proof is not of this run's key")


def greet(
    sock: socket.socket,
    name: str,
    credentials: Credentials,
    *,
    deadline: float,
    server: bool,
    expected: Collection[str],
    claim: Callable[[str], None] = lambda peer: None,
) -> tuple[socket.socket, str]:
    """Prove to the peer who this is, and have it prove who it is; its socket and name.

    A server asks ``claim`` for the name that a peer has proved, before it proves its own. The
    socket is closed where anything fails.

    Raises:
        PeerRefused: a peer that is not expected, or has another key.
        DeadlineExceeded, PeerClosed: a peer that says too little.
    """
    try:
        sock.settimeout(max(0.001, deadline - monotonic()))
        if credentials.tls is not None:
            sock = credentials.tls.wrap(sock, server=server)
        return sock, _exchange(
            sock,
            name,
            credentials.key,
            deadline=deadline,
            server=server,
            expected=expected,
            claim=claim,
        )
    except BaseException as error:
        sock.close()  # the wrapped one, which its caller does not know
        if isinstance(error, TimeoutError):
            raise DeadlineExceeded("the peer did not prove itself in time", local=name) from None
        if isinstance(error, OSError):  # ssl.SSLError is one
            raise PeerRefused(f"{error}", local=name) from error
        raise


def _exchange(
    sock: socket.socket,
    name: str,
    key: bytes,
    *,
    deadline: float,
    server: bool,
    expected: Collection[str],
    claim: Callable[[str], None],
) -> str:
    ours = hello(name)
    sock.sendall(ours)
    theirs = _receive(sock, HELLO_BYTES, deadline)
    peer = _name(theirs)
    if peer not in expected:
        raise PeerRefused(f"no peer of the name {peer!r} is expected")
    if server:
        _verify(sock, b"connects", theirs, ours, key, deadline)
        claim(peer)
        _prove(sock, b"accepts", ours, theirs, key)
    else:
        _prove(sock, b"connects", ours, theirs, key)
        _verify(sock, b"accepts", theirs, ours, key, deadline)
    return peer


class Refusals(Struct, kw_only=True):
    """Connections that were turned away while peers were awaited, by the error's code."""

    by_code: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def count(self) -> int:
        """All of them."""
        return sum(self.by_code.values())

    def add(self, code: str) -> None:
        """Count one more."""
        self.by_code[code] = self.by_code.get(code, 0) + 1


def accept_peers(
    listener: socket.socket,
    name: str,
    peers: Collection[str],
    credentials: Credentials,
    *,
    deadline: float,
    refusals: Refusals | None = None,
) -> dict[str, socket.socket]:
    """Wait for every one of ``peers`` to connect and prove itself; refuse everybody else.

    Strangers are heard beside each other, each for two seconds at most, so that none can keep
    the others out. The listener is closed at the end: no later connection is possible.

    Raises:
        DeadlineExceeded: a peer that did not come.
    """
    refusals = refusals if refusals is not None else Refusals()
    proven: dict[str, socket.socket] = {}
    unproven: dict[Thread, socket.socket] = {}
    claims: dict[str, socket.socket] = {}

    def hear(sock: socket.socket) -> None:
        def claim(peer: str) -> None:
            if claims.setdefault(peer, sock) is not sock:
                raise PeerRefused(f"{peer!r} is connected already")

        try:
            wrapped, peer = greet(
                sock,
                name,
                credentials,
                deadline=min(deadline, monotonic() + HANDSHAKE_S),
                server=True,
                expected=peers,
                claim=claim,
            )
            proven[peer] = wrapped
        except LiveError as error:
            for peer in [peer for peer, claimant in claims.items() if claimant is sock]:
                del claims[peer]  # it left before it was let in
            refusals.add(error.code)

    complete = False
    try:
        with listener:
            while len(proven) < len(peers):
                if monotonic() > deadline:
                    absent = sorted(set(peers) - proven.keys())
                    raise DeadlineExceeded(f"did not connect: {', '.join(absent)}", local=name)
                unproven = {t: s for t, s in unproven.items() if t.is_alive()}
                listener.settimeout(0.002 if unproven else 0.05)
                try:
                    sock, _ = listener.accept()
                except TimeoutError:
                    continue
                if len(unproven) >= MAX_STRANGERS:
                    refusals.add("crowd")
                    sock.close()
                    continue
                thread = Thread(target=hear, args=(sock,), daemon=True)
                unproven[thread] = sock
                thread.start()
        complete = True
    finally:
        for thread, sock in unproven.items():
            if sock not in proven.values():
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            thread.join()
        for sock in () if complete else proven.values():
            sock.close()
    return proven


def connect_peer(
    address: tuple[str, int],
    name: str,
    peer: str,
    credentials: Credentials,
    *,
    deadline: float,
) -> socket.socket:
    """Connect to ``peer`` at ``address``, which may not listen yet, and prove both ends.

    Raises:
        DeadlineExceeded: nobody listened in time.
        PeerRefused: somebody else did.
    """
    while True:
        try:
            sock = socket.create_connection(address, timeout=max(0.001, deadline - monotonic()))
        except OSError as error:
            failure: LiveError = PeerClosed(
                f"cannot connect: {error.strerror or error}", local=name, peer=peer
            )
        else:
            try:
                wrapped, _ = greet(
                    sock, name, credentials, deadline=deadline, server=False, expected=(peer,)
                )
                return wrapped
            except PeerClosed as error:  # too many strangers at its door, perhaps
                failure = error
            except LiveError as error:
                raise error.placed(local=name, peer=peer) from error
        if monotonic() > deadline:
            raise DeadlineExceeded(failure.message, local=name, peer=peer) from failure
        sleep(0.02)
