"""The footprint F = ⟨B_x, N_x, B_l, N_l, N_r, N_o⟩ of a plan (§4.3, equation 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from sembridge.layout import slice_bounds
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, AllGather, AnyOp, Broadcast, Part, Reduce, Send


class Footprint(Struct, frozen=True, kw_only=True, order=True, gc=False):
    """Bytes and startups across domains and inside them, reductions, ops. Compared in order."""

    cross_bytes: int = 0
    cross_startups: int = 0
    local_bytes: int = 0
    local_startups: int = 0
    reductions: int = 0
    ops: int = 0

    def __iter__(self) -> Iterator[int]:
        """The six components in the order of equation 5."""
        return iter(
            (
                self.cross_bytes,
                self.cross_startups,
                self.local_bytes,
                self.local_startups,
                self.reductions,
                self.ops,
            )
        )

    def dominates(self, other: Footprint) -> bool:
        """Pareto: nowhere more, somewhere less."""
        return self != other and all(a <= b for a, b in zip(self, other, strict=True))


def part_bytes(ob: Obligations, surface: str, part: Part | None) -> int:
    """Payload bytes of one slice (of the whole, where ``part`` is None)."""
    whole = ob.surface_bytes(surface)
    if part is None or surface != VALUE or not ob.elements:
        return whole
    start, stop = slice_bounds(ob.elements, part.index, part.of)
    return (stop - start) * (whole // ob.elements)


def footprint_of(ob: Obligations, ops: Iterable[AnyOp]) -> Footprint:
    """Sum the ops' costs; an illegal plan has a footprint too.

    A broadcast counts bytes × receivers of what its root holds, an all_gather what each member
    lacked, a reduction (|S| − 1) × bytes, a send its payload.
    """
    cross_bytes = cross_startups = local_bytes = local_startups = reductions = count = 0
    # Bytes of slices received so far, for the roots and members that hold slices only.
    partial: dict[tuple[str, str], int] = {}
    for op in ops:
        count += 1
        kind = type(op)
        if kind is Send:
            assert isinstance(op, Send)
            size = part_bytes(ob, op.surface, op.part)
            cross_bytes += size
            cross_startups += 1
            if op.part is not None:
                key = (op.dst, op.surface)
                partial[key] = partial.get(key, 0) + size
        elif kind is Broadcast:
            assert isinstance(op, Broadcast)
            size = ob.surface_bytes(op.surface)
            if partial:
                size = min(size, partial.get((op.src, op.surface), size))
                partial.update({(x, op.surface): size for x in op.dsts})
            local_bytes += size * len(op.dsts)
            local_startups += 1
        elif kind is AllGather:
            assert isinstance(op, AllGather)
            whole = ob.surface_bytes(op.surface)
            for x in op.members:
                local_bytes += whole - min(whole, partial.pop((x, op.surface), whole))
            local_startups += 1
        elif kind is Reduce:
            assert isinstance(op, Reduce)
            local_bytes += max(0, len(op.sources) - 1) * ob.value_bytes
            reductions += 1
    return Footprint(
        cross_bytes=cross_bytes,
        cross_startups=cross_startups,
        local_bytes=local_bytes,
        local_startups=local_startups,
        reductions=reductions,
        ops=count,
    )
