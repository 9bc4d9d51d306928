"""The control path (§5.2): lifecycle messages between the ranks of a run.

Inside a host they are datagrams between sockets in the run's private folder; between hosts they
are framed on the connection of the two leaders, in order with the data. Neither loses anything,
so nothing is repeated.
"""

from __future__ import annotations

import math
import socket
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from sembridge.live.executor import Rank
from sembridge.live.faults import LiveError
from sembridge.live.lifecycle import (
    Failed,
    Lifecycle,
    Lost,
    Message,
    Received,
    Retired,
    Seat,
    State,
)

MESSAGE_BYTES = 128
"""Length of a framed message: both ends of a connection know what comes next."""
MAX_DATAGRAM = 4096


class Datagram(msgspec.Struct, frozen=True, kw_only=True):
    """A message inside a host, and the lane that sends it."""

    lane: int
    message: Message


class Control:
    """One rank's end of the control path; ``hosts`` are domains and their numbers of lanes.

    Every rank of a host has to exist before any of them speaks.
    """

    def __init__(self, rank: Rank, hosts: dict[str, int]) -> None:
        self._rank = rank
        self.state = State(seat=Seat(rank.domain, rank.lane), hosts=hosts)
        self._folder = Path(rank.store.path).parent
        self._lost: deque[Lost] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._place(rank.lane)))
        self.lifecycle = Lifecycle(
            self.state,
            self._send,
            self._receive,
            deadline_s=rank.deadline_s,
            repeat_s=math.inf,
        )

    def _place(self, lane: int) -> Path:
        return self._folder / f"control-{self._rank.domain}-{lane}"

    def _send(self, seat: Seat, message: Message) -> None:
        try:
            if seat.host == self._rank.domain:
                # A full queue of the receiver's is waited for: it holds few datagrams.
                self._socket.settimeout(self._rank.deadline_s)
                said = Datagram(lane=self._rank.lane, message=_short(message))
                self._socket.sendto(msgspec.json.encode(said), str(self._place(seat.lane)))
            elif isinstance(message, Retired):
                line = msgspec.json.encode(message).ljust(MESSAGE_BYTES)
                self._rank.tell(_name(seat), line, epoch=message.epoch)
            # Another host learns of a failure from connections that close.
        except (OSError, LiveError) as error:
            self._lost.append(Lost(seat, str(error)))

    def _receive(self, timeout: float) -> Received | Lost | None:
        if self._lost:
            return self._lost.popleft()
        awaited = self.lifecycle.state.awaited
        if timeout and awaited and awaited[0].host != self._rank.domain:
            return self._hear(awaited[0], timeout)
        self._socket.settimeout(timeout)
        try:
            said = msgspec.json.decode(self._socket.recv(MAX_DATAGRAM), type=Datagram)
        except (BlockingIOError, TimeoutError):
            return None
        return Received(Seat(self._rank.domain, said.lane), said.message)

    def _hear(self, seat: Seat, timeout: float) -> Received | Lost:
        """The other leader's acknowledgement, which is the next frame on its connection."""
        epoch = self.lifecycle.state.epoch
        try:
            line = self._rank.hear(_name(seat), MESSAGE_BYTES, epoch=epoch, deadline_s=timeout)
        except LiveError as error:
            return Lost(seat, str(error))
        return Received(seat, msgspec.json.decode(line, type=Retired))

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()


def _name(seat: Seat) -> str:
    return f"{seat.host}/{seat.lane}"


def _short(message: Any) -> Any:
    """A reason that fits into a datagram."""
    if isinstance(message, Failed):
        return Failed(reason=message.reason[: MAX_DATAGRAM // 4])
    return message
