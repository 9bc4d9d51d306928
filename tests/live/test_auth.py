"""Who may connect, and what the others are told: nothing."""

from __future__ import annotations

import hmac
import shutil
import socket
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

from sembridge.errors import BadInput
from sembridge.live import auth
from sembridge.live.auth import (
    HELLO_BYTES,
    MAC_BYTES,
    Credentials,
    Refusals,
    Tls,
    accept_peers,
    connect_peer,
    new_key,
)
from sembridge.live.carrier import Connection
from sembridge.live.faults import DeadlineExceeded, LiveError, PeerClosed, PeerRefused
from sembridge.live.frame import control
from sembridge.live.mesh import listen
from tests.live.pairs import soon

KEY = Credentials(key=new_key())


class Door:
    """An accepting rank named ``s`` that waits for the peers of these names."""

    def __init__(self, *names: str, credentials: Credentials = KEY, seconds: float = 20.0) -> None:
        self.listener = listen()
        self.address = self.listener.getsockname()
        self.refusals = Refusals()
        self.threads = ThreadPoolExecutor(1)
        self.proven: Future[dict[str, socket.socket]] = self.threads.submit(
            accept_peers,
            self.listener,
            "s",
            names,
            credentials,
            deadline=soon(seconds),
            refusals=self.refusals,
        )

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.shutdown()
        if self.proven.exception() is None:
            for sock in self.proven.result().values():
                sock.close()

    def knock(self, name: str = "a", peer: str = "s", credentials: Credentials = KEY):
        return connect_peer(self.address, name, peer, credentials, deadline=soon(20))


def hung_up(sock: socket.socket) -> bool:
    sock.settimeout(10)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_both_ends_know_each_other():
    with Door("a", "b") as door:
        socks = {name: door.knock(name) for name in ("b", "a")}
        accepted = door.proven.result()
        assert accepted.keys() == {"a", "b"}
        for name, sock in socks.items():
            sock.settimeout(5)
            accepted[name].sendall(name.encode())
            assert sock.recv(1) == name.encode()
            sock.close()
        assert door.refusals.count == 0
        with pytest.raises(ConnectionRefusedError):  # nobody comes later
            socket.create_connection(door.address)


def test_another_key_is_refused_by_both():
    with Door("a") as door:
        with pytest.raises(LiveError):
            connect_peer(
                door.address, "a", "s", Credentials(key=new_key()), deadline=monotonic() + 0.5
            )
        assert not door.proven.done()
        door.knock().close()
        door.proven.result()
        assert door.refusals.count >= 1


def test_an_acceptor_without_the_key_is_refused():
    listener = listen()

    def impostor() -> None:
        sock, _ = listener.accept()
        hello = sock.recv(HELLO_BYTES, socket.MSG_WAITALL)
        sock.sendall(auth.hello("s"))
        mac = sock.recv(MAC_BYTES, socket.MSG_WAITALL)
        sock.sendall(mac)  # reflects what it was sent
        sock.close()
        assert len(hello) == HELLO_BYTES

    thread = threading.Thread(target=impostor)
    thread.start()
    with pytest.raises(PeerRefused, match="not of this run's key"):
        connect_peer(listener.getsockname(), "a", "s", KEY, deadline=soon())
    thread.join()
    listener.close()


def test_strangers_learn_nothing_that_depends_on_the_key():
    with Door("a") as door:
        stranger = socket.create_connection(door.address)
        stranger.sendall(auth.hello("a"))
        stranger.settimeout(10)
        theirs = stranger.recv(HELLO_BYTES, socket.MSG_WAITALL)
        assert theirs[:4] == auth.MAGIC
        stranger.sendall(bytes(MAC_BYTES))
        assert hung_up(stranger)  # no proof for who has given none
        stranger.close()
        door.knock().close()
        door.proven.result()
        assert door.refusals.count == 1


def test_a_recorded_handshake_cannot_be_replayed():
    with Door("a", "b") as door:
        ours = auth.hello("a")
        with socket.create_connection(door.address) as first:
            first.sendall(ours)
            theirs = first.recv(HELLO_BYTES, socket.MSG_WAITALL)
            mac = hmac.digest(KEY.key, b"connects" + ours + theirs, "sha256")
            first.sendall(mac)
            assert len(first.recv(MAC_BYTES, socket.MSG_WAITALL)) == MAC_BYTES
            with socket.create_connection(door.address) as second:
                second.sendall(ours)
                second.recv(HELLO_BYTES, socket.MSG_WAITALL)
                second.sendall(mac)
                assert hung_up(second)
        door.knock("b").close()
        door.proven.result()


@pytest.mark.parametrize("name", ["z", "s", "a"])
def test_only_the_peers_awaited_and_each_once(name: str):
    with Door("a", "b") as door:
        first = door.knock("a")
        with pytest.raises(LiveError):
            connect_peer(door.address, name, "s", KEY, deadline=monotonic() + 0.3)
        door.knock("b").close()
        assert door.proven.result().keys() == {"a", "b"}
        first.close()


def test_strangers_that_say_nothing_do_not_keep_the_others_out(monkeypatch):
    monkeypatch.setattr(auth, "MAX_STRANGERS", 4)
    monkeypatch.setattr(auth, "HANDSHAKE_S", 0.3)
    with Door("a") as door:
        silent = [socket.create_connection(door.address) for _ in range(8)]
        door.knock().close()
        assert door.proven.result().keys() == {"a"}
        for sock in silent:
            sock.close()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 10_000, bytes(96)])
def test_those_who_speak_something_else_are_refused(said: bytes, monkeypatch):
    monkeypatch.setattr(auth, "HANDSHAKE_S", 0.3)
    with Door("a") as door, socket.create_connection(door.address) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        door.knock().close()
        door.proven.result()
    assert door.refusals.count == 1


def test_a_peer_that_does_not_come_is_named():
    with Door("a", "b", seconds=0.3) as door:
        door.knock("b").close()
        with pytest.raises(DeadlineExceeded, match="s: did not connect: a"):
            door.proven.result()


def test_nobody_listens():
    listener = listen()
    address = listener.getsockname()
    listener.close()
    with pytest.raises(DeadlineExceeded, match="a <- s: cannot connect"):
        connect_peer(address, "a", "s", KEY, deadline=monotonic() + 0.2)


@pytest.mark.parametrize("name", ["", "é" * 31, "a\0b"])
def test_names_that_no_hello_holds(name: str):
    with Door("a", seconds=1.0) as door:
        with pytest.raises(BadInput, match="name"):
            connect_peer(door.address, name, "s", KEY, deadline=soon())
        with pytest.raises(DeadlineExceeded):
            door.proven.result()


def test_half_a_hello_then_silence_ends_in_time():
    listener = listen()
    with ThreadPoolExecutor(1) as threads:
        outcome = threads.submit(
            connect_peer, listener.getsockname(), "a", "s", KEY, deadline=monotonic() + 0.3
        )
        sock, _ = listener.accept()
        sock.sendall(auth.MAGIC)
        with pytest.raises((DeadlineExceeded, PeerClosed)):
            outcome.result()
        sock.close()
    listener.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    folder: Path = tmp_path_factory.mktemp("tls")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=rank"
    subprocess.run(
        ["openssl", *made.split(), "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    certificate = str(folder / "cert.pem")
    return Tls(certificate=certificate, key=str(folder / "key.pem"), authority=certificate)


def test_frames_cross_tls(certificates: Tls):
    credentials = Credentials(key=KEY.key, tls=certificates)
    size = 1_000_000
    with Door("a", credentials=credentials) as door:
        a = Connection(door.knock(credentials=credentials), local="a", peer="s")
        s = Connection(door.proven.result()["a"], local="s", peer="a")
        with ThreadPoolExecutor(1) as threads:
            into = bytearray(size)
            received = threads.submit(
                s.receive, control(size, epoch=0), memoryview(into), deadline=soon()
            )
            a.send(control(size, epoch=0), memoryview(b"t" * size), deadline=soon())
            received.result()
        assert into == b"t" * size
        with pytest.raises(DeadlineExceeded):
            a.receive(control(1, epoch=0), memoryview(bytearray(1)), deadline=monotonic() + 0.2)
        a.close()
        s.close()


def test_a_peer_without_tls_is_refused(certificates: Tls):
    with Door("a", credentials=Credentials(key=KEY.key, tls=certificates)) as door:
        with pytest.raises(LiveError):
            connect_peer(door.address, "a", "s", KEY, deadline=monotonic() + 0.5)
        door.knock(credentials=Credentials(key=KEY.key, tls=certificates)).close()
        door.proven.result()
        assert door.refusals.count >= 1


def test_unreadable_certificates_are_bad_input(tmp_path: Path):
    missing = str(tmp_path / "none.pem")
    tls = Tls(certificate=missing, key=missing, authority=missing)
    a, b = socket.socketpair()
    with pytest.raises(BadInput, match="TLS files"):
        tls.wrap(a, server=True)
    a.close()
    b.close()
