"""Ranks, where they listen, and the connections between ranks of different domains."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from time import monotonic

from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.live.auth import Credentials, Refusals, accept_peers, connect_peer
from sembridge.live.carrier import Connection
from sembridge.live.link import Link

LOOPBACK = "127.0.0.1"


class Address(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rank, its domain, and where it listens for the ranks after it."""

    name: str
    domain: str
    host: str = LOOPBACK
    port: int = 0


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A listening socket; on loopback, and on a free port, unless told otherwise."""
    return socket.create_server((host, port), backlog=64)


def connect_mesh(
    name: str,
    ranks: Sequence[Address],
    listener: socket.socket,
    credentials: Credentials,
    *,
    deadline: float,
    link: Link | None = None,
    refusals: Refusals | None = None,
) -> dict[str, Connection]:
    """Connect to every rank of another domain: to those listed before, from those listed after.

    The first rank only accepts, so the order has no circle.

    Raises:
        LiveError: a peer that is late, gone, or proves nothing.
        BadInput: two ranks of one name.
    """
    position = {rank.name: i for i, rank in enumerate(ranks)}
    if len(position) != len(ranks):
        raise BadInput("two ranks of one name")
    here = ranks[position[name]]
    others = [rank for rank in ranks if rank.domain != here.domain]
    sockets: dict[str, socket.socket] = {}
    try:
        for rank in others:
            if position[rank.name] < position[name]:
                sockets[rank.name] = connect_peer(
                    (rank.host, rank.port), name, rank.name, credentials, deadline=deadline
                )
        later = [rank.name for rank in others if position[rank.name] > position[name]]
        sockets |= accept_peers(
            listener, name, later, credentials, deadline=deadline, refusals=refusals
        )
        return {
            peer: Connection(sock, local=name, peer=peer, link=link)
            for peer, sock in sockets.items()
        }
    except BaseException:
        listener.close()
        for sock in sockets.values():
            sock.close()
        raise


def soon(seconds: float) -> float:
    """The monotonic moment that is ``seconds`` away."""
    return monotonic() + seconds
