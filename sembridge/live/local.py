"""A world in one process: every rank a thread, real sockets and real native collectives.

Starts in milliseconds, and is how plans are judged live. What a dead process does to its peers
only :mod:`sembridge.live.launch` can show.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from sembridge.live.auth import Credentials, new_key
from sembridge.live.backends import backend, torch
from sembridge.live.executor import Observation, Rank
from sembridge.live.faults import LiveError, PlanFault
from sembridge.live.mesh import Address, connect_mesh, listen, soon
from sembridge.obligations import Obligations
from sembridge.plan import Plan, Tag


class LocalWorld:
    """Endpoints of some domains, each played by a thread; ranks are called as endpoints are."""

    def __init__(
        self, domain_of: Mapping[str, str], *, backend_name: str = "gloo", deadline_s: float = 10.0
    ) -> None:
        self.domain_of = dict(domain_of)
        self.broken = False
        self._stores: dict[str, Any] = {}
        self._backend = backend(backend_name)
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(max_workers=len(domain_of), thread_name_prefix="rank")
        dist = torch().distributed
        self._stores = {domain: dist.HashStore() for domain in set(domain_of.values())}
        listeners = {x: listen() for x in self.domain_of}
        ranks = [
            Address(name=x, domain=domain, port=listeners[x].getsockname()[1])
            for x, domain in self.domain_of.items()
        ]
        credentials = Credentials(key=new_key())
        deadline = soon(deadline_s)
        meshes = {
            x: self._threads.submit(
                connect_mesh, x, ranks, listeners[x], credentials, deadline=deadline
            )
            for x in self.domain_of
        }
        try:
            self.ranks = {
                x: Rank(
                    x,
                    backend=self._backend,
                    device=self._backend.device(i),
                    peers=meshes[x].result(),
                    join=lambda members, x=x: self._join(x, members),
                    deadline_s=deadline_s,
                    domain=self.domain_of[x],
                )
                for i, x in enumerate(self.domain_of)
            }
        except BaseException:
            self._threads.shutdown()
            for mesh in meshes.values():
                if mesh.exception() is None:
                    for connection in mesh.result().values():
                        connection.close()
            raise

    def _join(self, local: str, members: tuple[str, ...]) -> Any:
        dist = torch().distributed
        store = dist.PrefixStore("/".join(members), self._stores[self.domain_of[local]])
        return self._backend.group(store, members.index(local), len(members), self._deadline_s)

    def run(
        self,
        ob: Obligations,
        plan: Plan,
        values: Mapping[str, Any],
        *,
        edge: int = 0,
        tag: Tag | None = None,
    ) -> dict[str, Observation]:
        """Run a plan once, each producer with its value; what every endpoint then holds.

        Raises:
            PlanFault: an op that cannot be carried out.
            LiveError: anything else that went wrong; the world is ``broken`` after it.
        """
        running = {
            x: self._threads.submit(rank.run, ob, plan, edge=edge, tag=tag, value=values.get(x))
            for x, rank in self.ranks.items()
        }
        observed: dict[str, Observation] = {}
        errors: list[BaseException] = []
        for future in running.values():
            try:
                observed |= future.result()
            except BaseException as error:
                errors.append(error)
                if not isinstance(error, PlanFault):
                    self.broken = True
                    self._hang_up()
        if errors:
            raise min(errors, key=_rank_of_cause)
        return observed

    def _hang_up(self) -> None:
        """Let no other rank wait for one that has failed."""
        for rank in self.ranks.values():
            for connection in rank.peers.values():
                connection.close()

    def close(self) -> None:
        """End every thread and close every socket."""
        self._hang_up()
        self._threads.shutdown()
        for rank in self.ranks.values():
            rank.close()

    def __enter__(self) -> LocalWorld:
        """The world itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def _rank_of_cause(error: BaseException) -> int:
    """Causes before consequences: a closed peer is the consequence of something."""
    if not isinstance(error, LiveError):
        return 0
    return 2 if error.code == "peer-closed" else 1
