"""NumPy kernels of the registered projections: the definition of what each of them gives.

A kernel reads rows of logits and gives one record a row. Every result is a function of a row's
entries alone, not of the order in which they are visited or of how they are cut into shards:
keys are compared as integers, exponentials are summed as integers, and everything else is single
IEEE 754 operations on float64, which round alike on every device that has them. No library
function that may differ between builds (exp, log, a reordered sum) is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, factorial
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sembridge.surfaces import BINS, Choice, Projected, Record

Array = NDArray[Any]

LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634
ROOT_HALF = 0.7071067811865476
FRACTION_BITS = 32
LARGEST = float(np.finfo(np.float64).max)
NAN_KEY = 2**63 - 1


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a contract's dtype name; bfloat16 and float8 are ml_dtypes'."""
    return np.dtype(getattr(ml_dtypes, name, name))


def record_dtype(record: Record, value_dtype: str = "") -> np.dtype[Any]:
    """The packed structured dtype of a record, field for field."""
    return np.dtype(
        [
            (name, numpy_dtype(dtype or value_dtype), () if count == 1 else (count,))
            for name, dtype, count in record
        ]
    )


def result_dtype(projected: Projected) -> np.dtype[Any]:
    """The dtype of one row of a projection's result."""
    return record_dtype(projected.row) if projected.row else numpy_dtype(projected.dtype)


# order -----------------------------------------------------------------------------------------


def argmax(rows: Array) -> Array:
    """Index of the largest entry of each row: lowest on ties, the first NaN above any number."""
    return np.argmax(rows if rows.dtype == np.float64 else rows.astype(np.float32), axis=1)


def order_keys(values: Array) -> Array:
    """Integers in the order of the values: equal for -0 and 0, NaN above everything."""
    wide = values.astype(np.float64) + 0.0
    bits = wide.view(np.int64)
    return np.where(np.isnan(wide), NAN_KEY, bits ^ ((bits >> 63) & NAN_KEY))


def largest(keys: Array, k: int) -> Array:
    """Positions of the ``k`` largest of ``keys`` in order, the lowest position first on ties."""
    if k == 0:
        return np.empty(0, np.intp)
    least = np.partition(keys, keys.size - k)[keys.size - k]
    above = np.flatnonzero(keys > least)
    ties = np.flatnonzero(keys == least)[: k - above.size]
    return np.concatenate((above[np.argsort(-keys[above], kind="stable")], ties))


# exponentials ----------------------------------------------------------------------------------


def exponentials(values: Array) -> tuple[Array, Array]:
    """exp(v) as q·2^(n - 32): the exponent n (a float64 integer) and q in [2^31, 2^33).

    ``values`` are finite. The relative error is below 2^-31.
    """
    scaled = np.clip(values.astype(np.float64) * LOG2E, -LARGEST, LARGEST)
    exponent = np.floor(scaled + 0.5)
    rest = (scaled - exponent) * LN2
    total = np.full_like(rest, 1.0 / factorial(14))
    for i in range(13, -1, -1):
        total = total * rest + 1.0 / factorial(i)
    return exponent, np.floor(total * 2.0**FRACTION_BITS + 0.5).astype(np.int64)


def logarithm(values: Array) -> Array:
    """ln v of finite v > 0 in float64, by atanh's series on [√½, √2)."""
    mantissa, exponent = np.frexp(values)
    low = mantissa < ROOT_HALF
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    total = np.full_like(s, 1.0 / 25)
    for odd in range(23, 0, -2):
        total = total * square + 1.0 / odd
    return (exponent - low) * LN2 + 2.0 * s * total


def exponential_sum(row: Array) -> tuple[float, Array]:
    """Σ exp over a row as its largest exponent and one integer for each exponent below it.

    The exponent is NaN, inf or -inf where the row has a NaN, an inf, or no finite entry. Entries
    ``BINS`` or more exponents below the largest are left out. Adding the bins of two parts at the
    larger of their exponents gives the bins of the whole, exactly.
    """
    bins = np.zeros(BINS, np.int64)
    wide = row.astype(np.float64)
    if np.isnan(wide).any():
        return float("nan"), bins
    if np.isposinf(wide).any():
        return float("inf"), bins
    exponent, q = exponentials(wide[np.isfinite(wide)])
    if exponent.size == 0:
        return float("-inf"), bins
    top = float(exponent.max())
    below = top - exponent
    kept = below < BINS
    np.add.at(bins, below[kept].astype(np.int64), q[kept])
    return top, bins


def log_of_sum(top: float, bins: Array) -> float:
    """ln Σ exp in float64, from :func:`exponential_sum`."""
    if not np.isfinite(top):
        return top
    total = sum(int(q) << (BINS - 1 - i) for i, q in enumerate(bins))
    shift = total.bit_length() - 53
    mantissa = total >> shift if shift > 0 else total << -shift
    exponent = top + (shift - (BINS - 1) - FRACTION_BITS)
    return float(exponent * LN2 + logarithm(np.asarray([float(mantissa)]))[0])


def logprobs(values: Array, logsumexp: float) -> Array:
    """Float32 log-probabilities: v - log-sum-exp in float64, rounded once; NaN has one pattern."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = (values.astype(np.float64) - logsumexp).astype(np.float32)
    return np.where(np.isnan(found), np.float32("nan"), found)


# choices ---------------------------------------------------------------------------------------


def noise(choice: Choice, columns: int) -> Array:
    """Standard Gumbel noise of every column, from (seed, position) alone.

    Column j takes word j mod 4 of Philox4x64-10 at counter 1 + j // 4 under the key
    (seed mod 2^64, position); its upper 52 bits are the uniform number, at the middle of its
    interval.
    """
    key = np.array([(choice.seed or 0) % 2**64, choice.position or 0], np.uint64)
    words = np.random.Philox(key=key).random_raw(columns)
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return -logarithm(-logarithm(uniform))


def choose_one(row: Array, choice: Choice) -> int:
    """The token that one row of logits gives under a choice.

    Masked columns are no candidates at all, so not even a row of -inf yields one. A bias is
    added in the logits' own precision, float32 at least; scores v / temperature + noise are
    float64. Where a candidate is NaN, the first NaN is the token, as in argmax.
    """
    work = row if row.dtype == np.float64 else row.astype(np.float32)
    if choice.bias:
        columns, values = zip(*choice.bias, strict=True)
        work = work.copy()
        work[list(columns)] += np.asarray(values, np.float32)
    left = np.ones(row.size, np.bool_)
    if choice.allowed is not None:
        left[:] = False
        left[list(choice.allowed)] = True
    left[list(choice.banned)] = False
    among = np.flatnonzero(left)
    work = work[among]
    temperature = float(np.float32(choice.temperature))
    if temperature == 0 or np.isnan(work).any():
        return int(among[argmax(work[None])[0]])
    with np.errstate(over="ignore"):
        scores = work.astype(np.float64) / temperature
    kept = _nucleus(scores, choice)
    drawn = scores[kept] + noise(choice, row.size)[among[kept]]
    return int(among[kept[argmax(drawn[None])[0]]])


def _nucleus(scores: Array, choice: Choice) -> Array:
    """Positions that top-k and then top-p leave, lowest first.

    Top-k keeps exactly k in argmax's order, ties by index. Top-p keeps the shortest prefix of
    that order whose probability reaches top_p; weights are integers relative to the largest, so
    the comparison is exact.
    """
    top_p = float(np.float32(choice.top_p))
    if choice.top_k == 0 and top_p == 1:
        return np.arange(scores.size)
    ordered = largest(order_keys(scores), min(choice.top_k, scores.size) or scores.size)
    if top_p < 1 and np.isfinite(scores[ordered[0]]):
        finite = ordered[np.isfinite(scores[ordered])]
        exponent, q = exponentials(scores[finite])
        weights = q >> np.minimum(exponent.max() - exponent, 63.0).astype(np.int64)
        reached = np.cumsum(weights)
        wanted = ceil(Fraction(top_p) * int(reached[-1]))
        ordered = finite[: int(np.searchsorted(reached, wanted)) + 1]
    return np.sort(ordered)


HEADER = record_dtype(Choice.HEADER)
BIAS = np.dtype([("id", "<u4"), ("value", "<f4")])


def pack(choices: Sequence[Choice]) -> Array:
    """Choices as bytes: for each a header, then its allowed ids, its banned ids, its biases."""
    parts: list[bytes] = []
    for c in choices:
        header = np.zeros((), HEADER)
        header["seed"], header["position"] = (c.seed or 0) % 2**64, c.position or 0
        header["temperature"], header["top_p"], header["top_k"] = c.temperature, c.top_p, c.top_k
        header["allowed"] = -1 if c.allowed is None else len(c.allowed)
        header["banned"], header["bias"] = len(c.banned), len(c.bias)
        ids = np.asarray((*(c.allowed or ()), *c.banned), "<u4")
        parts += [header.tobytes(), ids.tobytes(), np.asarray([*c.bias], BIAS).tobytes()]
    return np.frombuffer(b"".join(parts), np.uint8)


def unpack(data: Array) -> tuple[Choice, ...]:
    """The choices that :func:`pack` wrote; of one without a key, the key is (0, 0)."""
    found: list[Choice] = []
    raw, at = data.tobytes(), 0
    while at < len(raw):
        header = np.frombuffer(raw, HEADER, 1, at)[0]
        at += HEADER.itemsize
        lists: list[tuple[int, ...]] = []
        for name in ("allowed", "banned"):
            count = max(int(header[name]), 0)
            lists.append(tuple(np.frombuffer(raw, "<u4", count, at).tolist()))
            at += 4 * count
        bias = np.frombuffer(raw, BIAS, int(header["bias"]), at)
        at += bias.nbytes
        seed = int(header["seed"])
        found.append(
            Choice(
                temperature=float(header["temperature"]),
                top_p=float(header["top_p"]),
                top_k=int(header["top_k"]),
                seed=seed - 2**64 if seed >= 2**63 else seed,
                position=int(header["position"]),
                allowed=lists[0] if header["allowed"] >= 0 else None,
                banned=lists[1],
                bias=tuple(bias.tolist()),
            )
        )
    return tuple(found)


# kernels ---------------------------------------------------------------------------------------


class Kernel(Struct, frozen=True):
    """What a projection computes.

    ``whole`` maps (rows, columns) without padding, the projection and its choices to its result.
    ``local`` does the same for one shard, given the global index of its first column;
    ``combine`` completes the shards' records, in any order.
    """

    whole: Callable[[Array, Projected, Sequence[Choice]], Array]
    local: Callable[[Array, Projected, int], Array] | None = None
    combine: Callable[[Sequence[Array], Projected], Array] | None = None


def _argmax(rows: Array, projected: Projected, choices: Sequence[Choice]) -> Array:
    return argmax(rows).astype(numpy_dtype(projected.dtype))


def _choose(rows: Array, projected: Projected, choices: Sequence[Choice]) -> Array:
    tokens = [choose_one(row, choice) for row, choice in zip(rows, choices, strict=True)]
    return np.asarray(tokens, numpy_dtype(projected.dtype))


def _top_logprobs(rows: Array, projected: Projected, choices: Sequence[Choice]) -> Array:
    out = np.zeros(len(rows), result_dtype(projected))
    tokens = _choose(rows, projected, choices) if choices else argmax(rows)
    for r, row in enumerate(rows):
        keys, token = order_keys(row), int(tokens[r])
        first = largest(keys, projected.k)
        logsumexp = log_of_sum(*exponential_sum(row))
        rank = int((keys >= keys[token]).sum())
        fill(out[r : r + 1], logsumexp, token, row[token], rank, first, row[first])
    return out


def fill(
    out: Array, logsumexp: float, token: int, value: Any, rank: int, ids: Array, values: Array
) -> None:
    """Write one record of top log-probabilities."""
    out["token"], out["rank"], out["logsumexp"] = token, rank, logsumexp
    out["token_logprob"] = logprobs(np.asarray([value]), logsumexp)
    if out["ids"].size:
        shape = out["ids"].shape
        out["ids"] = ids.reshape(shape)
        out["logprobs"] = logprobs(values, logsumexp).reshape(shape)


def _valid(rows: Array, projected: Projected, offset: int) -> Array:
    """A shard without its padding columns; -inf at the last column stands in for none at all.

    It wins nowhere: every real column has a lower index, or is that very column.
    """
    vocabulary = projected.vocabulary or 0
    valid = rows[:, : max(vocabulary - offset, 0)]
    return valid if valid.shape[1] else np.full((len(rows), 1), -np.inf, rows.dtype)


def _local_argmax(rows: Array, projected: Projected, offset: int) -> Array:
    valid = _valid(rows, projected, offset)
    at = argmax(valid)
    out = np.zeros(len(rows), record_dtype(projected.partial, rows.dtype.name))
    out["value"] = valid[np.arange(len(rows)), at]
    out["id"] = np.minimum(at + offset, (projected.vocabulary or 1) - 1)
    return out


def _first_largest(partials: Sequence[Array], projected: Projected) -> Array:
    """Of (value, global index) pairs the largest value's, the lowest index on ties."""
    every = np.stack(partials)
    best = np.lexsort((every["id"], -order_keys(every["value"])), axis=0)[0]
    chosen = np.take_along_axis(every["id"], best[None], 0)[0]
    return chosen.astype(numpy_dtype(projected.dtype))


def _local_top(rows: Array, projected: Projected, offset: int) -> Array:
    valid = _valid(rows, projected, offset)
    last = (projected.vocabulary or 1) - 1
    out = np.zeros(len(rows), record_dtype(projected.partial, rows.dtype.name))
    size = max(projected.k, 1)
    values = out["values"].reshape(len(rows), size)
    ids = out["ids"].reshape(len(rows), size)
    values[:], ids[:] = -np.inf, last
    for r, row in enumerate(valid):
        keys = order_keys(row)
        first = largest(keys, min(size, keys.size))
        values[r, : first.size] = row[first]
        ids[r, : first.size] = np.minimum(first + offset, last)
        real = offset <= last
        out["ties"][r] = int((keys == keys[first[0]]).sum()) if real else 0
        out["exponent"][r], out["bins"][r] = exponential_sum(row)
    return out


def _merge_largest(partials: Sequence[Array], projected: Projected) -> Array:
    """Merge the shards' largest, count the largest's ties, and add the sums of exponentials."""
    out = np.zeros(len(partials[0]), result_dtype(projected))
    for r in range(len(out)):
        parts = [part[r] for part in partials]
        values = np.concatenate([np.atleast_1d(part["values"]) for part in parts])
        ids = np.concatenate([np.atleast_1d(part["ids"]) for part in parts])
        keys = order_keys(values)
        order = np.lexsort((ids, -keys))
        heads = [order_keys(np.atleast_1d(part["values"])[:1])[0] for part in parts]
        best = order[0]
        ties = sum(
            int(part["ties"]) for part, head in zip(parts, heads, strict=True) if head == keys[best]
        )
        logsumexp = log_of_sum(*_added(parts))
        first = order[: projected.k]
        fill(
            out[r : r + 1], logsumexp, int(ids[best]), values[best], ties, ids[first], values[first]
        )
    return out


def _added(parts: Sequence[Any]) -> tuple[float, Array]:
    """The sum of exponentials of the whole, from those of its parts."""
    tops = np.asarray([float(part["exponent"]) for part in parts])
    top = float(tops.max())
    bins = np.zeros(BINS, np.int64)
    if np.isfinite(top):
        for part, own in zip(parts, tops, strict=True):
            below = int(min(top - own, BINS))
            bins[below:] += part["bins"][: BINS - below]
    return top, bins


KERNELS: dict[str, Kernel] = {
    "argmax": Kernel(_argmax),
    "sharded_argmax": Kernel(_argmax, _local_argmax, _first_largest),
    "top_logprobs": Kernel(_top_logprobs),
    "sharded_top_logprobs": Kernel(_top_logprobs, _local_top, _merge_largest),
    "choose": Kernel(_choose),
}
"""The kernel of each registered projection, by its name."""
