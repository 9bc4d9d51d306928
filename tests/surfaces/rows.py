"""Value-revealing logits: ties, masks, NaN, infinities, padding, in every floating dtype."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from numpy.typing import NDArray

from sembridge.kernels import numpy_dtype

NAN, INF = float("nan"), float("inf")
DTYPES = ("float32", "bfloat16", "float16", "float64")

REVEALING: dict[str, list[float]] = {
    "distinct": [0.5, 3.25, -1.0, 2.0, 7.0, -8.0],
    "ties": [1, 3, 3, 2, 3, -1],
    "all equal": [2, 2, 2, 2, 2, 2],
    "masked": [-INF, -2, -INF, -2, -INF, -INF],
    "all masked": [-INF] * 6,
    "one NaN": [1, NAN, 9, 2, 3, 4],
    "two NaNs beside infinity": [INF, 1, NAN, -INF, NAN, 0],
    "infinities": [1, INF, 2, INF, -INF, 0],
    "zeros of both signs": [-0.0, 0.0, -0.0, -1, 0.0, -1],
    "far apart": [60000, -60000, 0, 59000, 60000, 1],
}


def revealing(dtype: str) -> NDArray[Any]:
    """Every row of ``REVEALING`` as one array."""
    with np.errstate(over="ignore"):
        return np.array(list(REVEALING.values())).astype(numpy_dtype(dtype))


@st.composite
def rows(draw: st.DrawFn, *, columns: int | None = None) -> NDArray[Any]:
    """Small arrays of few distinct values, so that ties and special values are common."""
    pool = st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.0, 1.5, -3.0, 80.0, -700.0, 1e-4])
    ordinary = st.floats(-100, 100, width=16)
    width = columns or draw(st.integers(1, 12))
    kind = draw(st.sampled_from([pool, ordinary, st.sampled_from([0.0, 1.0, 2.0])]))
    count = draw(st.integers(0, 3))
    data = draw(st.lists(kind, min_size=count * width, max_size=count * width))
    array = np.array(data, np.float64).reshape(count, width)
    return array.astype(numpy_dtype(draw(st.sampled_from(DTYPES))))


def before(row: NDArray[Any], i: int, j: int) -> bool:
    """Whether column i precedes j: NaN first, then the larger value, then the lower index."""
    a, b = float(row[i]), float(row[j])
    if np.isnan(a) != np.isnan(b):
        return bool(np.isnan(a))
    if np.isnan(a) or a == b:
        return i < j
    return a > b


def in_order(row: NDArray[Any]) -> list[int]:
    """All columns of a row in argmax's order, by comparing them one with another."""
    ordered: list[int] = []
    for column in range(row.size):
        at = next((k for k, c in enumerate(ordered) if before(row, column, c)), len(ordered))
        ordered.insert(at, column)
    return ordered
