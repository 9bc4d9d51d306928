"""The wire format: the sizes the paper's totals need, and a header that says all it should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sembridge.errors import BadInput
from sembridge.footprint import part_bytes
from sembridge.layout import slice_bounds
from sembridge.live.faults import FrameRejected
from sembridge.live.frame import (
    DTYPE_CODES,
    HEADER,
    METADATA,
    Frame,
    Kind,
    control,
    decode,
    describe,
    encode,
    is_stale,
    mismatch,
    with_metadata,
)
from sembridge.obligations import resolve_valid
from sembridge.plan import VALUE, Part, Send, Tag
from sembridge.surfaces import PARAMETERS, Choice, ChosenTokens, Tokens, TopLogprobs
from sembridge.wire import framed
from tests.core.build import contract
from tests.live.pairs import TAG, frame

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)

frames = st.builds(
    Frame,
    kind=st.sampled_from(Kind),
    dtype=st.integers(0, len(DTYPE_CODES) - 1),
    edge=st.integers(0, 2**16 - 1),
    request=U64,
    token=st.integers(0, 2**62),
    microbatch=U32,
    epoch=U32,
    length=st.integers(0, 2**62),
    metadata=st.sampled_from([b"", bytes(range(METADATA.size))]),
)


@given(frames, U32, st.binary(max_size=64))
def test_a_header_says_everything_about_a_frame(sent: Frame, sequence: int, payload: bytes):
    wire = encode(sent, sequence, memoryview(payload))
    assert len(wire) == HEADER.size + len(sent.metadata)
    header = decode(wire[: HEADER.size])
    assert with_metadata(header, wire[HEADER.size :]) == sent
    assert header.sequence == sequence
    header.digest.update(payload)
    assert header.digest.intdigest() & 0xFFFFFFFF == header.checksum


@given(frames, st.binary(min_size=1, max_size=64), st.data())
def test_no_flipped_bit_goes_unnoticed(sent: Frame, payload: bytes, data: st.DataObject):
    wire = bytearray(encode(sent, 7, memoryview(payload)) + payload)
    bit = data.draw(st.integers(0, len(wire) * 8 - 1))
    wire[bit // 8] ^= 1 << bit % 8
    body = HEADER.size + len(sent.metadata)
    try:
        header = decode(wire[: HEADER.size])
    except FrameRejected:
        return
    if header.metadata_length != len(sent.metadata):
        return  # another frame, which no receiver of this one reads on from
    got = with_metadata(header, bytes(wire[HEADER.size : body]))
    header.digest.update(wire[body:])
    intact = header.digest.intdigest() & 0xFFFFFFFF == header.checksum
    assert not intact or mismatch(got, sent) is not None or header.sequence != 7


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [("magic", 0, 0), ("magic", 2, 9), ("kind", 3, 0), ("kind", 3, 5), ("dtype", 4, 200)]
    + [("metadata", 5, n) for n in (1, 81, 83, 255)],
)
def test_headers_of_no_frame_are_refused(field: str, at: int, value: int):
    wire = bytearray(encode(frame(), 0, memoryview(b"")))
    wire[at] = value
    with pytest.raises(FrameRejected, match=f"^{field}: ") as caught:
        decode(wire[: HEADER.size])
    assert caught.value.field == field


@given(st.integers(1, 40), st.integers(1, 8), st.data())
def test_frames_weigh_what_the_plan_says(elements: int, of: int, data: st.DataObject):
    index = data.draw(st.integers(0, of - 1))
    ob = resolve_valid(contract(shape=(elements,)))
    part = Part(index=index, of=of)
    sent = describe(ob, VALUE, part, 0, TAG)
    plan = framed(ob, [Send(src="p0", dst="c0", part=part)])
    assert sent.length == part_bytes(ob, VALUE, part) == plan.payload
    assert HEADER.size + len(sent.metadata) + sent.length == plan.framed
    if of > 1:
        fields = METADATA.unpack(sent.metadata)
        assert fields[:5] == (1, index, of, *slice_bounds(elements, index, of))
        assert fields[5:] == (elements, 0, 0, 0, 0, 0, 0)


def test_shapes_of_many_axes_keep_their_last_six():
    ob = resolve_valid(contract(shape=(2, 3, 1, 2, 1, 2, 1, 2, 3)))
    sent = describe(ob, VALUE, Part(index=0, of=2), 0, TAG)
    assert METADATA.unpack(sent.metadata)[0] == 9
    assert METADATA.unpack(sent.metadata)[5:] == (6, 2, 1, 2, 1, 2, 3)


def test_every_kind_of_surface_has_its_frame():
    tokens = resolve_valid(contract(surface=Tokens()))
    assert describe(tokens, "tokens", None, 1, TAG).kind is Kind.RESULT
    assert describe(tokens, "tokens", None, 1, TAG).dtype == DTYPE_CODES["int32"]
    top = resolve_valid(contract(surface=TopLogprobs(k=2)))
    records = describe(top, top.observed[0], None, 1, TAG)
    assert (records.kind, records.dtype) == (Kind.RESULT, DTYPE_CODES["bytes"])
    assert records.length == top.sizes[top.observed[0]]
    chosen = resolve_valid(contract(surface=ChosenTokens(choices=(Choice(), Choice()))))
    known = describe(chosen, PARAMETERS, None, 1, TAG)
    assert (known.kind, known.length) == (Kind.PARAMETERS, chosen.sizes[PARAMETERS])
    assert control(9, epoch=4).kind is Kind.CONTROL


@pytest.mark.parametrize(
    ("edge", "tag"),
    [
        (2**16, TAG),
        (-1, TAG),
        (0, replace(TAG, epoch=2**32)),
        (0, replace(TAG, microbatch=2**32)),
    ],
)
def test_what_a_header_cannot_hold_is_bad_input(edge: int, tag: Tag):
    with pytest.raises(BadInput, match="too large for a frame"):
        frame(edge=edge, tag=tag)


def test_what_is_stale():
    now = frame()
    older = {
        "epoch": replace(TAG, epoch=1, token=9),
        "token": replace(TAG, token=2, microbatch=5),
        "recycled request, older epoch": replace(TAG, request="s", epoch=1),
    }
    for why, tag in older.items():
        assert is_stale(frame(tag=tag), now), why
    current_or_younger = {
        "same": TAG,
        "token": replace(TAG, token=4),
        "microbatch": replace(TAG, microbatch=1),
        "epoch": replace(TAG, epoch=3, token=0),
        "another request of this epoch": replace(TAG, request="s", token=0),
    }
    for why, tag in current_or_younger.items():
        assert not is_stale(frame(tag=tag), now), why
    assert not is_stale(control(1, epoch=0), now)
    assert not is_stale(frame(tag=replace(TAG, epoch=0)), control(1, epoch=1))


@pytest.mark.parametrize("name", [f for f in Frame.__struct_fields__ if f != "metadata"])
def test_a_mismatch_names_its_field(name: str):
    expected = frame()
    other = Kind.CONTROL if name == "kind" else getattr(expected, name) + 1
    wrong = mismatch(replace(expected, **{name: other}), expected)
    assert wrong is not None and wrong[0] == name
    assert mismatch(expected, expected) is None
    sliced = mismatch(replace(expected, metadata=b"x" * 82), expected)
    assert sliced is not None and sliced[0] == "metadata"
