"""A rank: one lane of one domain, and how it takes part in a plan (§5.5).

Ranks go through a plan's ops in the plan's own order, and each op waits for its peers only in
that order, so ranks of one plan cannot wait for each other in a circle. Surfaces are flat tensors
of bytes until they are handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce as fold
from time import monotonic
from typing import Any

import numpy as np
from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.kernels import KERNELS, Array, numpy_dtype, pack, record_dtype, result_dtype, unpack
from sembridge.layout import stable_order
from sembridge.live.backends import Backend, Communicator, Tensor, native_errors, torch, torch_dtype
from sembridge.live.carrier import NOTHING, Connection
from sembridge.live.faults import FrameRejected, LiveError, PeerClosed
from sembridge.live.frame import control, describe
from sembridge.live.schedule import (
    Completion,
    Fanout,
    Pool,
    Projection,
    Schedule,
    Transfer,
    schedule,
)
from sembridge.live.staging import StagingCache
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, Plan, Tag
from sembridge.surfaces import PARAMETERS
from sembridge.torch_kernels import TORCH_KERNELS
from sembridge.wire import HEADER_BYTES, Framed

NO_TAG = Tag(request="", token=0, microbatch=0, epoch=0)
NO_TRAFFIC = Framed(frames=0, payload=0, framed=0)

DEADLINE_S = 30.0
MAX_SCHEDULES = 256

_FOLDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "minimum": lambda a, b: torch().minimum(a, b),
    "maximum": lambda a, b: torch().maximum(a, b),
}


class Observation(Struct, frozen=True, kw_only=True):
    """What an endpoint holds after a plan, complete surfaces only.

    ``value`` has the contract's shape and dtype, ``result`` one entry or record a row of the
    projected surface (:func:`sembridge.kernels.result_dtype`). None where it is not held.
    """

    value: Tensor | None = None
    result: Array | None = None


def lanes_of(ob: Obligations) -> dict[str, str]:
    """Endpoints as lanes of their domains: the i-th of a domain, in stable order, is lane i."""
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for x in (*ob.producers, *ob.consumers):
        domain = ob.domain_of[x]
        names[x] = f"{domain}/{counts.get(domain, 0)}"
        counts[domain] = counts.get(domain, 0) + 1
    return names


class Rank:
    """One lane of a domain: its connections to other domains and its native communicators.

    ``join`` makes the process group of some ranks of this domain, ``emit`` tells the launcher
    something (a JSON object) while the rank runs. A launched rank has the ``store`` of its
    domain, for process groups of its own, and the number of connections it ``refused``.
    """

    def __init__(
        self,
        name: str,
        *,
        backend: Backend,
        device: Any,
        peers: Mapping[str, Connection],
        join: Callable[[tuple[str, ...]], Any],
        deadline_s: float = DEADLINE_S,
        domain: str = "",
        lane: int = 0,
        lanes: int = 1,
        emit: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> None:
        self.name, self.backend, self.device = name, backend, device
        self.domain, self.lane, self.lanes = domain, lane, lanes
        self.emit = emit
        self.store: Any = None
        self.refused = 0
        self.peers = dict(peers)
        self.deadline_s = deadline_s
        self.sent: dict[int, Framed] = {}
        self.received: dict[int, Framed] = {}
        self.staging = StagingCache(*([backend.allocate] if backend.allocate else []))
        self._join = join
        self._native: dict[tuple[str, ...], Communicator] = {}
        self._schedules: dict[tuple[int, int], tuple[Obligations, Plan, Schedule]] = {}

    # what a plan needs -----------------------------------------------------------------------

    def native(self, members: Sequence[str]) -> Communicator:
        """The communicator of some ranks of this domain, made when it is first needed.

        All of them have to ask for it.

        Raises:
            PeerClosed, DeadlineExceeded: one of them is gone, or does not.
        """
        key = tuple(stable_order(list(members)))
        if key not in self._native:
            with native_errors(self.name, key):
                group = self._join(key)
            self._native[key] = Communicator(self.backend, group, key, self.name)
        return self._native[key]

    def scheduled(self, ob: Obligations, plan: Plan) -> Schedule:
        """The plan's schedule, kept for the plans run last."""
        key = (id(ob), id(plan))
        if key not in self._schedules:
            if len(self._schedules) >= MAX_SCHEDULES:
                del self._schedules[next(iter(self._schedules))]
            # Both are kept with it, so that no other object can have their identity.
            self._schedules[key] = (ob, plan, schedule(ob, plan))
        return self._schedules[key][2]

    def run(
        self,
        ob: Obligations,
        plan: Plan,
        *,
        names: Mapping[str, str] | None = None,
        edge: int = 0,
        tag: Tag | None = None,
        value: Tensor | None = None,
    ) -> dict[str, Observation]:
        """Take part in one execution of a plan; what each of this rank's endpoints then holds.

        ``names`` maps the contract's endpoints to ranks (:func:`lanes_of`); without it ranks are
        called as endpoints are. ``value`` is what this rank's producer endpoint holds, of the
        contract's shape and dtype, on this rank's device; it may be overwritten after the call.
        ``tag`` (the contract's own by default) goes out with every frame, and only frames that
        carry it are accepted.

        Raises:
            PlanFault: an op that cannot be carried out; raised on every rank alike.
            LiveError: a peer that is gone, late, or sends what the plan does not say.
            BadInput: a value of another shape or dtype.
        """
        plays = names if names is not None else {x: x for x in ob.domain_of}
        mine = {x for x in ob.domain_of if plays.get(x) == self.name}
        work = _Execution(self, ob, plays, edge, tag or ob.contract.tag or NO_TAG)
        self._enter(work, mine, value)
        plan_schedule = self.scheduled(ob, plan)
        try:
            for step in plan_schedule.steps:
                work.carry_out(step)
            for connection in work.used:
                connection.flush(work.deadline)
        except LiveError as error:
            raise error.placed(local=self.name, edge=edge, tag=work.tag) from error
        if plan_schedule.fault is not None:
            raise plan_schedule.fault
        return {x: work.observation(x, plan_schedule) for x in mine}

    def _enter(self, work: _Execution, mine: set[str], value: Tensor | None) -> None:
        ob = work.ob
        holders = [x for x in mine if x in ob.producer_set]
        if len(holders) > 1:
            raise BadInput(f"{self.name} plays two producers: {', '.join(sorted(holders))}")
        if holders:
            shape, dtype = ob.contract.value.shape, torch_dtype(ob.contract.value.dtype)
            if value is None or tuple(value.shape) != shape or value.dtype != dtype:
                got = None if value is None else (tuple(value.shape), str(value.dtype))
                raise BadInput(f"{self.name}: a value of {shape}, {dtype} is due, not {got}")
            work.data[holders[0], VALUE] = _bytes(value.detach())
        if ob.projected is not None and ob.projected.choices:
            known = torch().frombuffer(bytearray(pack(ob.projected.choices)), dtype=torch().uint8)
            for x in mine.intersection(ob.informed):
                work.data[x, PARAMETERS] = known

    # control ---------------------------------------------------------------------------------

    def tell(self, peer: str, message: bytes, *, epoch: int = 0) -> None:
        """Send a control message (§5.2) to a rank of another domain."""
        frame = control(len(message), epoch=epoch)
        self.connection(peer).send(
            frame, memoryview(message), deadline=monotonic() + self.deadline_s
        )

    def hear(self, peer: str, size: int, *, epoch: int = 0, deadline_s: float = 0) -> bytes:
        """Receive the control message of ``size`` bytes that ``peer`` sends next."""
        into = bytearray(size)
        deadline = monotonic() + (deadline_s or self.deadline_s)
        self.connection(peer).receive(
            control(size, epoch=epoch), memoryview(into), deadline=deadline
        )
        return bytes(into)

    def connection(self, name: str) -> Connection:
        """The connection to a rank of another domain.

        Raises:
            PeerClosed: there is none.
        """
        if name not in self.peers:
            raise PeerClosed(f"no connection to {name}", local=self.name)
        return self.peers[name]

    def flush(self) -> None:
        """Wait until all that was told has been handed to the sockets.

        Raises:
            LiveError: a peer is gone, or does not read.
        """
        for connection in self.peers.values():
            connection.flush(monotonic() + self.deadline_s)

    def close(self) -> None:
        """Close every connection; native communicators end with the process or the object."""
        for connection in self.peers.values():
            connection.close()
        self._native.clear()


class _Execution:
    """One run of one plan at one rank."""

    def __init__(
        self, rank: Rank, ob: Obligations, plays: Mapping[str, str], edge: int, tag: Tag
    ) -> None:
        self.rank, self.ob, self.plays = rank, ob, plays
        self.edge, self.tag = edge, tag
        self.deadline = monotonic() + rank.deadline_s
        self.data: dict[tuple[str, str], Tensor] = {}
        self.used: set[Connection] = set()

    def carry_out(self, step: object) -> None:
        match step:
            case Transfer():
                if self._mine(step.src):
                    self._send(step)
                elif self._mine(step.dst):
                    self._receive(step)
            case Fanout():
                self._broadcast(step)
            case Pool():
                self._all_gather(step)
            case Completion():
                self._reduce(step)
            case Projection():
                if self._mine(step.at):
                    self._project(step)
            case _:
                raise TypeError(step)

    def _mine(self, endpoint: str) -> bool:
        return self.plays.get(endpoint) == self.rank.name

    def _empty(self, size: int) -> Tensor:
        return torch().empty(size, dtype=torch().uint8, device=self.rank.device)

    # across ----------------------------------------------------------------------------------

    def _send(self, step: Transfer) -> None:
        frame = describe(self.ob, step.surface, step.part, self.edge, self.tag)
        data = self.data[step.src, step.surface][step.start : step.stop]
        connection = self.rank.connection(self.plays[step.dst])
        if self.rank.backend.allocate is None:
            connection.send(frame, _view(data), deadline=self.deadline)
            self.used.add(connection)
        else:
            buffer = self.rank.staging.take(data.numel())
            staged = torch().frombuffer(buffer, dtype=torch().uint8)[: data.numel()]
            staged.copy_(data)
            connection.send(
                frame,
                buffer[: data.numel()],
                deadline=self.deadline,
                done=lambda: self.rank.staging.give(buffer),
            )
        self._count(self.rank.sent, frame.length, len(frame.metadata))

    def _receive(self, step: Transfer) -> None:
        frame = describe(self.ob, step.surface, step.part, self.edge, self.tag)
        if frame.length != step.stop - step.start:
            raise FrameRejected(
                "length", f"{step.surface} has {frame.length} bytes, not {step.stop - step.start}"
            )
        key = (step.dst, step.surface)
        if step.fresh:
            self.data[key] = self._empty(step.size)
        elif step.dst in self.ob.producer_set:
            self.data[key] = self.data[key].clone()  # the caller's own value
        target = self.data[key][step.start : step.stop]
        connection = self.rank.connection(self.plays[step.src])
        if self.rank.backend.allocate is None:
            connection.receive(frame, _view(target), deadline=self.deadline, tag=self.tag)
        else:
            buffer = self.rank.staging.take(target.numel())
            into = buffer[: target.numel()]
            connection.receive(frame, into, deadline=self.deadline, tag=self.tag)
            if target.numel():
                target.copy_(torch().frombuffer(into, dtype=torch().uint8))
            self.rank.staging.give(buffer)
        self._count(self.rank.received, frame.length, len(frame.metadata))

    def _count(self, counts: dict[int, Framed], payload: int, metadata: int) -> None:
        counts[self.edge] = counts.get(self.edge, NO_TRAFFIC) + Framed(
            frames=1, payload=payload, framed=payload + HEADER_BYTES + metadata
        )

    # inside ----------------------------------------------------------------------------------

    def _native(self, endpoints: Sequence[str]) -> Communicator | None:
        ranks = {self.plays[x] for x in endpoints}
        return self.rank.native(tuple(ranks)) if self.rank.name in ranks else None

    def _broadcast(self, step: Fanout) -> None:
        members = [step.src, *step.dsts]
        native = self._native(members) if set(step.dsts) - {step.src} else None
        if native is None:
            return
        key = (step.src, step.surface)
        data = self.data[key] if self._mine(step.src) else self._empty(step.held.size)
        if data.numel():
            native.broadcast(data, self.plays[step.src])
        for dst in filter(self._mine, step.dsts):
            there = self.data.get((dst, step.surface))
            if there is None or step.held.whole or dst == step.src:
                self.data[dst, step.surface] = data
            else:
                merged = there.clone()
                for start, stop in step.held.ranges:
                    merged[start:stop] = data[start:stop]
                self.data[dst, step.surface] = merged

    def _all_gather(self, step: Pool) -> None:
        native = self._native(step.members)
        if native is None:
            return
        mine = next(x for x in step.members if self._mine(x))
        sizes = [sum(stop - start for start, stop in ranges) for ranges in step.brings]
        brought = self._empty(max(sizes))
        held, at = self.data[mine, step.surface], 0
        for start, stop in step.brings[step.members.index(mine)]:
            brought[at : at + stop - start] = held[start:stop]
            at += stop - start
        whole = self._empty(step.size)
        if brought.numel():
            pieces = native.all_gather(brought)
            for member, ranges in zip(step.members, step.brings, strict=True):
                piece, at = pieces[native.members.index(self.plays[member])], 0
                for start, stop in ranges:
                    whole[start:stop] = piece[at : at + stop - start]
                    at += stop - start
        self.data[mine, step.surface] = whole

    def _reduce(self, step: Completion) -> None:
        members = list(dict.fromkeys((*step.sources, *step.targets)))
        native = self._native(members)
        if native is None:
            return
        sources = [x for x in step.sources if self._mine(x)]
        mine = self.data[sources[0], step.surface] if sources else self._empty(step.size)
        dtype = self.ob.contract.value.dtype
        if step.combine:
            result = self._combined(native, step, mine)
        elif sorted(step.sources) == sorted(members) and native.reduces(dtype) and mine.numel():
            reduced = mine.clone()
            native.all_reduce(typed(reduced, dtype), step.operator)
            result = reduced
        else:
            pieces = self._pieces(native, step, mine)
            addends = [typed(piece, dtype) for piece in pieces]
            result = _bytes(fold(_FOLDS[step.operator], addends))
        for target in filter(self._mine, step.targets):
            self.data[target, step.surface] = result

    def _pieces(self, native: Communicator, step: Completion, mine: Tensor) -> list[Tensor]:
        """Every source's bytes, in the plan's order."""
        if not mine.numel():
            return [mine for _ in step.sources]
        pieces = native.all_gather(mine)
        return [pieces[native.members.index(self.plays[x])] for x in step.sources]

    def _combined(self, native: Communicator, step: Completion, mine: Tensor) -> Tensor:
        projected = self.ob.projected
        assert projected is not None
        combine = KERNELS[projected.name].combine
        assert combine is not None
        dtype = record_dtype(projected.partial, self.ob.contract.value.dtype)
        records = [_host(piece).view(dtype) for piece in self._pieces(native, step, mine)]
        return self._from_host(combine(records, projected))

    def _from_host(self, array: Array) -> Tensor:
        flat = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        return torch().from_numpy(flat.copy()).to(self.rank.device)

    # projection ------------------------------------------------------------------------------

    def _project(self, step: Projection) -> None:
        projected, value = self.ob.projected, self.ob.contract.value
        assert projected is not None
        held = self.data[step.at, VALUE]
        on_host = held.device.type == "cpu"
        kernel = (KERNELS if on_host else TORCH_KERNELS)[step.projection]
        rows: Any
        if on_host:
            rows = _host(held).view(numpy_dtype(value.dtype)).reshape(-1, value.shape[-1])
        else:
            rows = typed(held, value.dtype, (-1, value.shape[-1]))
        if step.shard is not None:
            assert kernel.local is not None
            data = kernel.local(rows, projected, step.shard * value.shape[-1])
        else:
            choices = ()
            if projected.choices:
                choices = unpack(_host(self.data[step.at, PARAMETERS]))
            data = kernel.whole(rows[:, : value.valid_last], projected, choices)
        if (step.at, step.output) not in self.data:
            self.data[step.at, step.output] = self._from_host(data)

    # observation -----------------------------------------------------------------------------

    def observation(self, endpoint: str, plan_schedule: Schedule) -> Observation:
        value, projected = self.ob.contract.value, self.ob.projected
        whole = {
            surface: self.data[x, surface]
            for (x, surface), held in plan_schedule.holds.items()
            if x == endpoint and held.whole and held.form == "final"
        }
        tensor = whole.get(VALUE)
        result = None if projected is None else whole.get(projected.output)
        return Observation(
            value=None if tensor is None else typed(tensor, value.dtype, value.shape),
            result=None
            if result is None or projected is None
            else _host(result).view(result_dtype(projected)),
        )


def _bytes(tensor: Tensor) -> Tensor:
    """A flat view of a tensor's bytes; a copy where it is not contiguous."""
    return tensor.contiguous().reshape(-1).view(torch().uint8)


def typed(data: Tensor, dtype: str, shape: Sequence[int] = (-1,)) -> Tensor:
    """Bytes as a tensor of a contract's dtype and shape; flat by default."""
    if not data.numel():  # torch cannot view nothing as another dtype
        flat = torch().empty(0, dtype=torch_dtype(dtype), device=data.device)
        return flat if tuple(shape) == (-1,) else flat.reshape(tuple(shape))
    return data.view(torch_dtype(dtype)).reshape(tuple(shape))


def _host(data: Tensor) -> Array:
    return data.cpu().numpy()


def _view(data: Tensor) -> memoryview:
    return memoryview(data.numpy()) if data.numel() else NOTHING
