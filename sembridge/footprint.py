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
    whole = ob.sizes.get(surface, 0)
    if part is None or surface != VALUE or not ob.elements:
        return whole
    start, stop = slice_bounds(ob.elements, part.index, part.of)
    return (stop - start) * (whole // ob.elements)


def partial_bytes(ob: Obligations, surface: str) -> int:
    """Bytes of one source's contribution to a reduction of ``surface``."""
    projected = ob.projected
    if surface == VALUE or projected is None or surface != projected.output:
        return ob.value_bytes
    value = ob.contract.value
    return projected.partial_bytes(value.shape, value.dtype)


def footprint_of(ob: Obligations, ops: Iterable[AnyOp]) -> Footprint:
    """Sum the ops' costs; an illegal plan has a footprint too.

    A broadcast counts bytes × receivers of what its root holds, an all_gather what each member
    lacked, a reduction (|S| − 1) × bytes, a send its payload.
    """
    sizes = ob.sizes
    cross_bytes = cross_startups = local_bytes = local_startups = reductions = count = 0
    # Bytes of the value received so far, by endpoints that hold slices of it only.
    slices: dict[str, int] = {}
    for op in ops:
        count += 1
        if type(op) is Send:
            if op.part is None:
                cross_bytes += sizes.get(op.surface, 0)
            else:
                size = part_bytes(ob, op.surface, op.part)
                cross_bytes += size
                slices[op.dst] = slices.get(op.dst, 0) + size
            cross_startups += 1
        elif type(op) is Broadcast:
            size = sizes.get(op.surface, 0)
            if op.surface == VALUE and op.src in slices:
                size = min(size, slices[op.src])
                slices.update(dict.fromkeys(op.dsts, size))
            local_bytes += size * len(op.dsts)
            local_startups += 1
        elif type(op) is AllGather:
            size = sizes.get(op.surface, 0)
            for x in op.members:
                local_bytes += size - min(size, slices.pop(x, size))
            local_startups += 1
        elif type(op) is Reduce:
            local_bytes += max(0, len(op.sources) - 1) * partial_bytes(ob, op.surface)
            reductions += 1
    return Footprint(
        cross_bytes=cross_bytes,
        cross_startups=cross_startups,
        local_bytes=local_bytes,
        local_startups=local_startups,
        reductions=reductions,
        ops=count,
    )
