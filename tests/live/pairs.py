"""Two ends of one connection, and frames to send over it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from sembridge.live.carrier import Connection
from sembridge.live.frame import Frame, describe
from sembridge.live.link import Link
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import VALUE, Part, Tag
from tests.core.build import contract

TAG = Tag(request="r", token=3, microbatch=0, epoch=2)


def soon(seconds: float = 20.0) -> float:
    return monotonic() + seconds


def obligations(elements: int = 16) -> Obligations:
    return resolve_valid(contract(shape=(elements,)))


def frame(elements: int = 16, *, part: Part | None = None, edge: int = 0, tag: Tag = TAG) -> Frame:
    return describe(obligations(elements), VALUE, part, edge, tag)


@contextmanager
def connected(link: Link | None = None) -> Iterator[tuple[Connection, Connection]]:
    a, b = tcp_pair()
    left = Connection(a, local="a", peer="b", link=link)
    right = Connection(b, local="b", peer="a")
    try:
        yield left, right
    finally:
        left.close()
        right.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        a = socket.create_connection(listener.getsockname())
        b, _ = listener.accept()
    return a, b
