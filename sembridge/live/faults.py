"""What goes wrong in a live run: every error names the local rank, the peer, the edge, the tag."""

from __future__ import annotations

from typing import ClassVar, Self

from sembridge.errors import SemBridgeError
from sembridge.plan import Tag


class LiveError(SemBridgeError):
    """An execution error (exit 4): the run did not finish, which says nothing of the plan."""

    code: ClassVar[str] = "execution"
    exit_code: ClassVar[int] = 4

    def __init__(
        self,
        message: str,
        *,
        local: str = "",
        peer: str = "",
        edge: int | None = None,
        tag: Tag | None = None,
    ) -> None:
        self.message, self.local, self.peer, self.edge, self.tag = message, local, peer, edge, tag
        where = [f"{local} <- {peer}" if peer else local]
        if edge is not None:
            where.append(f"edge {edge}")
        if tag is not None:
            where.append(f"{tag.request}/{tag.token}/{tag.microbatch}/{tag.epoch}")
        prefix = ", ".join(part for part in where if part)
        super().__init__(f"{prefix}: {message}" if prefix else message)

    def placed(
        self, *, local: str = "", peer: str = "", edge: int | None = None, tag: Tag | None = None
    ) -> Self:
        """The same error, saying where it happened as far as it does not say so already."""
        again = self.__class__.__new__(self.__class__)  # copy() would call for all arguments
        vars(again).update(vars(self))
        LiveError.__init__(
            again,
            self.message,
            local=self.local or local,
            peer=self.peer or peer,
            edge=edge if self.edge is None else self.edge,
            tag=self.tag or tag,
        )
        return again


class PeerClosed(LiveError):
    """The peer closed the connection, or is gone."""

    code = "peer-closed"


class DeadlineExceeded(LiveError):
    """Nothing, or not enough, arrived in time."""

    code = "deadline"


class PeerRefused(LiveError):
    """A peer that did not prove that it belongs to this run."""

    code = "refused"


class FrameRejected(LiveError):
    """A frame other than the plan makes its receiver expect; ``field`` is what is wrong."""

    code = "frame"

    def __init__(self, field: str, message: str, **context: object) -> None:
        self.field = field
        super().__init__(f"{field}: {message}", **context)  # pyright: ignore[reportArgumentType]


class PlanFault(LiveError):
    """An op that cannot be carried out: nothing to read, or no communicator that spans it."""

    code = "fault"


class RunFailed(LiveError):
    """A rank failed a launched run: which, how, and what every rank said (``errors``)."""

    code = "run"

    def __init__(self, rank: str, reason: str, errors: dict[str, str]) -> None:
        self.rank, self.reason, self.errors = rank, reason, errors
        super().__init__(reason, local=rank)
