"""Framed bytes of a plan: payload plus what the wire format puts around it.

Derived from the paper's printed totals, which it does not explain: a frame has a fixed 48-byte
header, and 82 bytes of tensor metadata where it carries a slice of a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from sembridge.footprint import part_bytes
from sembridge.obligations import Obligations
from sembridge.plan import AnyOp, Send

HEADER_BYTES = 48
SLICE_METADATA_BYTES = 82


class Framed(Struct, frozen=True, kw_only=True):
    """Cross-domain traffic of a plan: frames, payload bytes, and bytes with the framing."""

    frames: int
    payload: int
    framed: int

    def __add__(self, other: Framed) -> Framed:
        return Framed(
            frames=self.frames + other.frames,
            payload=self.payload + other.payload,
            framed=self.framed + other.framed,
        )


def framed(ob: Obligations, ops: Iterable[AnyOp]) -> Framed:
    """Sum over the sends of a plan; native operations have no frames."""
    frames = payload = overhead = 0
    for op in ops:
        if isinstance(op, Send):
            sliced = op.part is not None and op.part.of > 1
            frames += 1
            payload += part_bytes(ob, op.surface, op.part)
            overhead += HEADER_BYTES + (SLICE_METADATA_BYTES if sliced else 0)
    return Framed(frames=frames, payload=payload, framed=payload + overhead)
