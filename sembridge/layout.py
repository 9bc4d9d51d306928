"""What a tensor layout says, and no more: dtypes, shapes, meshes, placements, flat slices.

The layout-only planner imports this module and :mod:`sembridge.plan`, and nothing else.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct


class DType(Struct, frozen=True, kw_only=True, gc=False):
    """``itemsize`` in bytes; ``largest_index`` is the largest n such that 0..n are all exact."""

    itemsize: int
    floating: bool
    largest_index: int


def _float(bits: int, mantissa: int) -> DType:
    return DType(itemsize=bits // 8, floating=True, largest_index=2 ** (mantissa + 1))


def _int(bits: int, signed: bool) -> DType:
    return DType(itemsize=bits // 8, floating=False, largest_index=2 ** (bits - signed) - 1)


DTYPES: dict[str, DType] = {
    "float64": _float(64, 52),
    "float32": _float(32, 23),
    "float16": _float(16, 10),
    "bfloat16": _float(16, 7),
    "float8_e4m3fn": _float(8, 3),
    "float8_e5m2": _float(8, 2),
    **{f"int{bits}": _int(bits, True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _int(bits, False) for bits in (8, 16, 32, 64)},
}

Operator = Literal["sum", "product", "minimum", "maximum"]


class Replicate(Struct, frozen=True, tag_field="type", tag="replicate", forbid_unknown_fields=True):
    """Every producer holds the same logical value, says the layout."""


class Shard(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="shard", forbid_unknown_fields=True
):
    """Producers hold disjoint pieces of one logical value along axis ``dim``."""

    dim: int


class Partial(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="partial", forbid_unknown_fields=True
):
    """Producers hold addends (or factors, or candidates) of an elementwise reduction ``op``."""

    op: Operator


Placement = Replicate | Shard | Partial


class Lane(Struct, frozen=True, kw_only=True, gc=False):
    """One endpoint of a mesh; ``source`` is the producer lane that a consumer lane maps to."""

    id: str
    domain: str
    source: str = ""


class Layout(Struct, frozen=True, kw_only=True):
    """All that a layout-directed planner sees. ``shape`` is what one producer holds."""

    shape: tuple[int, ...]
    dtype: str
    producers: tuple[Lane, ...]
    consumers: tuple[Lane, ...]
    placement: Placement


def slice_bounds(elements: int, index: int, of: int) -> tuple[int, int]:
    """Start and stop of flat slice ``index`` of ``of``, as ``numpy.array_split`` makes them.

    >>> [slice_bounds(10, i, 4) for i in range(4)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    size, longer = divmod(elements, of)
    start = index * size + min(index, longer)
    return start, start + size + (index < longer)


def elements_of(shape: tuple[int, ...]) -> int:
    """Element count of a shape; 1 for a scalar.

    >>> elements_of((4, 200064))
    800256
    """
    return math.prod(shape)


def stable_order(ids: list[str]) -> list[str]:
    """Endpoint ids in the kit's one order: shorter first, then by character (c2 before c10).

    Independent of the order of the input (§4.4, "a stable endpoint order").
    """
    return sorted(sorted(ids), key=len)
