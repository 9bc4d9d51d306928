"""The wire format: a 48-byte header, 82 bytes of metadata on a slice of a tensor, the payload.

The paper prints byte totals and no format; these two sizes give all of them (see
:mod:`sembridge.wire`). Little-endian, no padding:

=========  ==========================================================================
header     magic, version, kind, dtype, bytes of metadata, edge, checksum, sequence,
           request, token, microbatch, epoch, bytes of payload
metadata   rank of the tensor, slice index, of how many, first element, end, the last
           seven axes (leading ones folded into the first)
=========  ==========================================================================

The request is carried as eight bytes of its BLAKE2b digest, the checksum is the low half of the
XXH3 of all the rest: against corruption, not against an attacker, who is kept out on connecting.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from math import prod
from struct import Struct as Layout
from typing import Final

import xxhash
from msgspec import Struct
from msgspec.structs import replace

from sembridge.errors import BadInput
from sembridge.layout import DTYPES, slice_bounds
from sembridge.live.faults import FrameRejected
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, Part, Tag
from sembridge.surfaces import PARAMETERS
from sembridge.wire import HEADER_BYTES, SLICE_METADATA_BYTES

MAGIC: Final = 0x4253
VERSION: Final = 1
AXES: Final = 7

HEADER = Layout("<HBBBBHIIQQIIQ")
METADATA = Layout("<BxIIQQ7Q")
assert (HEADER.size, METADATA.size) == (HEADER_BYTES, SLICE_METADATA_BYTES)

_CHECKSUM_AT = 8
"""Where the checksum stands in a header; it is summed as if it were zero."""

_AFTER_SEQUENCE = 16
_SPLIT = Layout(f"<{_CHECKSUM_AT}sII{HEADER_BYTES - _AFTER_SEQUENCE}s")
_LOW = 0xFFFFFFFF

DTYPE_CODES: Final = {name: i + 1 for i, name in enumerate(DTYPES)} | {"bytes": 0}
"""``bytes`` is a projection's packed records."""

MAX_TAG = 2**32 - 1
"""Largest microbatch and epoch that a header holds."""


class Kind(IntEnum):
    """What a frame carries. Values and results follow distinct paths (§5.2)."""

    VALUE = 1
    RESULT = 2
    PARAMETERS = 3
    CONTROL = 4


class Frame(Struct, frozen=True, kw_only=True, gc=False):
    """What a frame is, apart from its place in the stream: all of it known to both ends.

    ``length`` is the payload's, in bytes; ``metadata`` is empty or 82 bytes.
    """

    kind: Kind
    dtype: int
    edge: int
    request: int
    token: int
    microbatch: int
    epoch: int
    length: int
    metadata: bytes = b""

    @property
    def order(self) -> tuple[int, int, int]:
        """By which an execution is older or younger than another of the same request."""
        return (self.epoch, self.token, self.microbatch)


@lru_cache(maxsize=1024)
def request_digest(request: str) -> int:
    """Eight bytes that stand for a request's name on the wire."""
    return int.from_bytes(blake2b(request.encode(), digest_size=8).digest(), "little")


def describe(ob: Obligations, surface: str, part: Part | None, edge: int, tag: Tag) -> Frame:
    """The frame of one send: what its sender writes, and what its receiver expects.

    Raises:
        BadInput: a tag or an edge that the header cannot hold.
    """
    if max(tag.microbatch, tag.epoch) > MAX_TAG or not 0 <= edge < 2**16:
        raise BadInput(f"microbatch, epoch or edge {edge} too large for a frame", path="$.tag")
    value, projected = ob.contract.value, ob.projected
    metadata = b""
    if surface == VALUE:
        kind, dtype, length = Kind.VALUE, DTYPE_CODES[value.dtype], ob.value_bytes
        if part is not None and part.of > 1:
            start, stop = slice_bounds(ob.elements, part.index, part.of)
            metadata = METADATA.pack(
                min(len(value.shape), 255), part.index, part.of, start, stop, *_axes(value.shape)
            )
            length = (stop - start) * DTYPES[value.dtype].itemsize
    elif surface == PARAMETERS:
        kind, dtype, length = Kind.PARAMETERS, DTYPE_CODES["bytes"], ob.sizes[surface]
    else:
        packed = projected is None or bool(projected.row)
        dtype = DTYPE_CODES["bytes" if packed or projected is None else projected.dtype]
        kind, length = Kind.RESULT, ob.sizes[surface]
    return Frame(
        kind=kind,
        dtype=dtype,
        edge=edge,
        request=request_digest(tag.request),
        token=tag.token,
        microbatch=tag.microbatch,
        epoch=tag.epoch,
        length=length,
        metadata=metadata,
    )


def control(length: int, *, epoch: int) -> Frame:
    """The frame of a control message (§5.2), which belongs to no edge and no request."""
    return Frame(
        kind=Kind.CONTROL,
        dtype=DTYPE_CODES["bytes"],
        edge=0,
        request=0,
        token=0,
        microbatch=0,
        epoch=epoch,
        length=length,
    )


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    last = shape[-AXES + 1 :] if len(shape) > AXES else shape[1:]
    lead = shape[: len(shape) - len(last)]
    axes = (prod(lead), *last)
    return axes + (0,) * (AXES - len(axes))


@lru_cache(maxsize=1024)
def _constant(frame: Frame) -> tuple[bytes, bytes]:
    """A frame's header before and after checksum and sequence, which alone vary."""
    head = HEADER.pack(
        MAGIC,
        VERSION,
        frame.kind,
        frame.dtype,
        len(frame.metadata),
        frame.edge,
        0,
        0,
        frame.request,
        frame.token,
        frame.microbatch,
        frame.epoch,
        frame.length,
    )
    return head[:_CHECKSUM_AT], head[_AFTER_SEQUENCE:]


def encode(frame: Frame, sequence: int, payload: memoryview) -> bytes:
    """Header and metadata of a frame; ``payload`` is only summed."""
    before, after = _constant(frame)
    sequence &= _LOW
    digest = xxhash.xxh3_64(_SPLIT.pack(before, 0, sequence, after))
    if frame.metadata:
        digest.update(frame.metadata)
    digest.update(payload)
    return _SPLIT.pack(before, digest.intdigest() & _LOW, sequence, after) + frame.metadata


class Header(Struct, frozen=True, kw_only=True, gc=False):
    """A header as received: well formed, and no more than that."""

    frame: Frame
    metadata_length: int
    checksum: int
    sequence: int
    digest: xxhash.xxh3_64


def recognise(head: bytearray, expected: Frame, sequence: int) -> tuple[int, xxhash.xxh3_64] | None:
    """Checksum and digest of a header that is, to the byte, the expected one; None of another."""
    before, checksum, number, after = _SPLIT.unpack(head)
    if number != sequence & _LOW or (before, after) != _constant(expected):
        return None
    return checksum, xxhash.xxh3_64(_SPLIT.pack(before, 0, number, after))


def decode(head: bytes | bytearray | memoryview) -> Header:
    """Read a header, without believing it.

    Raises:
        FrameRejected: another magic, version, kind, dtype or size of metadata.
    """
    (magic, version, kind, dtype, metadata_length, edge, checksum, sequence, *rest) = HEADER.unpack(
        head
    )
    if magic != MAGIC or version != VERSION:
        raise FrameRejected("magic", f"{magic:#06x} version {version} is no frame of this format")
    if not Kind.VALUE <= kind <= Kind.CONTROL:
        raise FrameRejected("kind", f"no kind {kind}")
    if dtype >= len(DTYPE_CODES):
        raise FrameRejected("dtype", f"no dtype {dtype}")
    if metadata_length not in (0, SLICE_METADATA_BYTES):
        raise FrameRejected("metadata", f"{metadata_length} bytes")
    request, token, microbatch, epoch, length = rest
    digest = xxhash.xxh3_64(head[:_CHECKSUM_AT])
    digest.update(b"\0\0\0\0")
    digest.update(head[_CHECKSUM_AT + 4 :])
    frame = Frame(
        kind=Kind(kind),
        dtype=dtype,
        edge=edge,
        request=request,
        token=token,
        microbatch=microbatch,
        epoch=epoch,
        length=length,
    )
    return Header(
        frame=frame,
        metadata_length=metadata_length,
        checksum=checksum,
        sequence=sequence,
        digest=digest,
    )


def is_stale(got: Frame, expected: Frame) -> bool:
    """Whether a frame belongs to an execution before the expected one.

    An older epoch is stale whatever its request: ids are used again (§5.4). Within one epoch
    only frames of the same request can be ordered.
    """
    if got.kind is Kind.CONTROL or expected.kind is Kind.CONTROL:
        return False
    if got.epoch != expected.epoch:
        return got.epoch < expected.epoch
    return got.request == expected.request and got.order < expected.order


def mismatch(got: Frame, expected: Frame) -> tuple[str, str] | None:
    """The first field in which a frame is not the expected one, and how; None where it is."""
    if got == expected:
        return None
    for name in ("epoch", "request", "token", "microbatch", "edge", "kind", "dtype", "length"):
        there, wanted = getattr(got, name), getattr(expected, name)
        if there != wanted:
            return name, f"{there}, expected {wanted}"
    return "metadata", f"{got.metadata.hex()}, expected {expected.metadata.hex()}"


def with_metadata(header: Header, metadata: bytes) -> Frame:
    """The received frame, complete with its metadata, which joins the checksum."""
    header.digest.update(metadata)
    return replace(header.frame, metadata=metadata) if metadata else header.frame
