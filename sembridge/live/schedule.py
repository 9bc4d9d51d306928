"""What each op of a plan asks of each endpoint: byte ranges, peers, native members.

Computed from contract and plan alone, so every rank has the same schedule and finds the same
fault at the same op, before anything is posted that a peer would wait for. It trusts no checker:
a plan that was never accepted is scheduled up to the op that cannot be carried out.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from sembridge.layout import DTYPES, slice_bounds
from sembridge.live.faults import PlanFault
from sembridge.obligations import Obligations
from sembridge.plan import (
    VALUE,
    AllGather,
    AnyOp,
    Broadcast,
    Part,
    Plan,
    Project,
    Reduce,
    Send,
)
from sembridge.surfaces import PARAMETERS

Ranges = tuple[tuple[int, int], ...]
"""Disjoint byte ranges in increasing order."""

Form = Literal["final", "records"]
"""Records are one shard's contribution, which a combine turns into the final result."""


class Held(Struct, frozen=True, kw_only=True):
    """What an endpoint holds of a surface: of ``size`` bytes these ranges."""

    size: int
    ranges: Ranges
    form: Form = "final"
    lane: int | None = None

    @property
    def whole(self) -> bool:
        """Whether every byte is there."""
        return not self.size or self.ranges == ((0, self.size),)


class Transfer(Struct, frozen=True, kw_only=True):
    """Bytes ``start`` to ``stop`` of a surface, from one domain to another, in one frame."""

    op: int
    src: str
    dst: str
    surface: str
    part: Part | None
    size: int
    start: int
    stop: int
    fresh: bool


class Fanout(Struct, frozen=True, kw_only=True):
    """A native broadcast of what ``src`` holds."""

    op: int
    src: str
    dsts: tuple[str, ...]
    surface: str
    held: Held


class Pool(Struct, frozen=True, kw_only=True):
    """A native all-gather: what each member brings, of ``size`` bytes."""

    op: int
    members: tuple[str, ...]
    surface: str
    size: int
    brings: tuple[Ranges, ...]


class Completion(Struct, frozen=True, kw_only=True):
    """A native reduction; ``combine`` where the operator combines records of a projection."""

    op: int
    operator: str
    combine: bool
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    surface: str
    size: int
    result_size: int


class Projection(Struct, frozen=True, kw_only=True):
    """A local projection; ``shard`` is which one of the whole it reads, None for all of it."""

    op: int
    projection: str
    at: str
    output: str
    shard: int | None


Step = Transfer | Fanout | Pool | Completion | Projection


class Schedule(Struct, frozen=True, kw_only=True):
    """The steps of a plan, and what every endpoint holds when they are done.

    ``fault`` is the op that cannot be carried out, which ends the schedule.
    """

    steps: tuple[Step, ...]
    holds: dict[tuple[str, str], Held]
    fault: PlanFault | None = None


def schedule(ob: Obligations, plan: Plan) -> Schedule:
    """Schedule a plan; a fault is part of the result, since every rank must come to it alike."""
    state = _State(ob)
    steps: list[Step] = []
    fault: PlanFault | None = None
    for index, op in enumerate(plan.ops):
        try:
            steps.append(state.step(index, op))
        except PlanFault as found:
            fault = PlanFault(f"op {index}: {found.message}")
            break
    return Schedule(steps=tuple(steps), holds=state.holds, fault=fault)


class _State:
    def __init__(self, ob: Obligations) -> None:
        self.ob = ob
        size = ob.value_bytes
        self.holds: dict[tuple[str, str], Held] = {
            (p, VALUE): Held(size=size, ranges=_all(size), lane=i)
            for i, p in enumerate(ob.producers)
        }
        if ob.projected is not None and ob.projected.choices:
            known = Held(
                size=ob.projected.parameter_bytes, ranges=_all(ob.projected.parameter_bytes)
            )
            self.holds.update({(x, PARAMETERS): known for x in ob.informed})

    def step(self, index: int, op: AnyOp) -> Step:
        match op:
            case Send():
                return self._send(index, op)
            case Broadcast():
                return self._broadcast(index, op)
            case AllGather():
                return self._all_gather(index, op)
            case Project():
                return self._project(index, op)
            case Reduce():
                return self._reduce(index, op)

    def _read(self, endpoint: str, surface: str) -> Held:
        held = self.holds.get((endpoint, surface))
        if held is None:
            raise PlanFault(f"{endpoint} has no {surface}")
        return held

    def _whole(self, endpoint: str, surface: str) -> Held:
        held = self._read(endpoint, surface)
        if not held.whole:
            raise PlanFault(f"{endpoint} has a part of {surface} only")
        return held

    def _domain(self, endpoint: str) -> str:
        domain = self.ob.domain_of.get(endpoint)
        if domain is None:
            raise PlanFault(f"no endpoint {endpoint}")
        return domain

    def _one_communicator(self, *endpoints: str) -> None:
        domains = {self._domain(x) for x in endpoints}
        if len(domains) != 1:
            raise PlanFault(f"no communicator spans {sorted(domains)}")

    def _send(self, index: int, op: Send) -> Transfer:
        if self._domain(op.src) == self._domain(op.dst):
            raise PlanFault(f"no carrier inside domain {self._domain(op.src)}")
        held = self._read(op.src, op.surface)
        start, stop = 0, held.size
        if op.part is not None:
            if op.surface != VALUE:
                raise PlanFault(f"{op.surface} has no slices")
            if op.part.index >= op.part.of:
                raise PlanFault(f"no slice {op.part.index} of {op.part.of}")
            itemsize = DTYPES[self.ob.contract.value.dtype].itemsize
            first, end = slice_bounds(self.ob.elements, op.part.index, op.part.of)
            start, stop = first * itemsize, end * itemsize
        if not _covers(held.ranges, start, stop):
            raise PlanFault(f"{op.src} has not all of {op.surface} that it is to send")
        if held.form != "final":
            raise PlanFault(f"{op.surface} at {op.src} awaits its combine")
        there = self.holds.get((op.dst, op.surface))
        fresh = op.part is None or there is None
        ranges: Ranges = ((start, stop),) if stop > start else ()
        if not fresh and there is not None:
            ranges = _union(there.ranges, ranges)
        self.holds[op.dst, op.surface] = Held(
            size=held.size, ranges=ranges, lane=held.lane if op.part is None else None
        )
        return Transfer(
            op=index,
            src=op.src,
            dst=op.dst,
            surface=op.surface,
            part=op.part,
            size=held.size,
            start=start,
            stop=stop,
            fresh=fresh,
        )

    def _broadcast(self, index: int, op: Broadcast) -> Fanout:
        self._one_communicator(op.src, *op.dsts)
        held = self._read(op.src, op.surface)
        for dst in op.dsts:
            there = self.holds.get((dst, op.surface))
            kept = there.ranges if there is not None and not held.whole else ()
            self.holds[dst, op.surface] = Held(
                size=held.size,
                ranges=_union(kept, held.ranges),
                form=held.form,
                lane=held.lane,
            )
        return Fanout(op=index, src=op.src, dsts=op.dsts, surface=op.surface, held=held)

    def _all_gather(self, index: int, op: AllGather) -> Pool:
        if not op.members:
            raise PlanFault("an all_gather of nobody")
        self._one_communicator(*op.members)
        members = tuple(dict.fromkeys(op.members))
        held = [self._read(x, op.surface) for x in members]
        if any(h.form != "final" for h in held):
            raise PlanFault(f"{op.surface} awaits its combine")
        ranges: Ranges = ()
        for h in held:
            ranges = _union(ranges, h.ranges)
        for x in members:
            self.holds[x, op.surface] = Held(size=held[0].size, ranges=ranges)
        return Pool(
            op=index,
            members=members,
            surface=op.surface,
            size=held[0].size,
            brings=tuple([h.ranges for h in held]),
        )

    def _project(self, index: int, op: Project) -> Projection:
        projected = self.ob.projected
        self._domain(op.at)
        if projected is None or op.projection != projected.name:
            raise PlanFault(f"no projection {op.projection!r} here")
        held = self._whole(op.at, VALUE)
        if projected.choices:
            self._whole(op.at, PARAMETERS)
        shape, shard = self.ob.contract.value.shape, None
        size, form = self.ob.sizes[projected.output], "final"
        if projected.combine is not None:
            if held.lane is None:
                raise PlanFault(f"{op.at} holds no one shard")
            shard, form = held.lane, "records"
            size = projected.partial_bytes(shape, self.ob.contract.value.dtype)
        self.holds.setdefault(
            (op.at, projected.output), Held(size=size, ranges=_all(size), form=form)
        )
        return Projection(
            op=index,
            projection=op.projection,
            at=op.at,
            output=projected.output,
            shard=shard,
        )

    def _reduce(self, index: int, op: Reduce) -> Completion:
        if not op.sources or not op.targets:
            raise PlanFault("a reduction of nothing, or to nobody")
        self._one_communicator(*op.sources, *op.targets)
        held = [self._whole(x, op.surface) for x in op.sources]
        projected, size = self.ob.projected, held[0].size
        combine = op.surface != VALUE
        if combine:
            if projected is None or op.operator != projected.combine:
                raise PlanFault(f"no combine {op.operator!r} of {op.surface}")
            if any(h.form != "records" for h in held):
                raise PlanFault(f"{op.surface} is combined already")
            result = self.ob.sizes[op.surface]
        else:
            if op.operator not in ("sum", "product", "minimum", "maximum"):
                raise PlanFault(f"no native {op.operator!r}")
            result = size
        for target in op.targets:
            self.holds[target, op.surface] = Held(size=result, ranges=_all(result))
        return Completion(
            op=index,
            operator=op.operator,
            combine=combine,
            sources=op.sources,
            targets=op.targets,
            surface=op.surface,
            size=size,
            result_size=result,
        )


def _all(size: int) -> Ranges:
    return ((0, size),) if size else ()


def _union(a: Ranges, b: Ranges) -> Ranges:
    """Joined ranges.

    >>> _union(((0, 4),), ((4, 6), (8, 9)))
    ((0, 6), (8, 9))
    """
    merged: list[tuple[int, int]] = []
    for start, stop in sorted((*a, *b)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


def _covers(ranges: Ranges, start: int, stop: int) -> bool:
    return stop <= start or any(a <= start and stop <= b for a, b in ranges)
