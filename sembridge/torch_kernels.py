"""The kernels on torch tensors, wherever they lie: NumPy's results, bit for bit.

Only integer operations and single IEEE operations on float64 are used, each a torch call of its
own, so nothing is contracted or reordered. Rows stay on their device; what leaves it is one
record a row. Torch is an extra and is imported when a kernel runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, factorial
from typing import Any

import numpy as np

from sembridge.errors import BadInput
from sembridge.kernels import (
    FRACTION_BITS,
    KERNELS,
    LARGEST,
    LN2,
    LOG2E,
    NAN_KEY,
    Array,
    Kernel,
    fill,
    log_of_sum,
    noise,
    numpy_dtype,
    record_dtype,
    result_dtype,
)
from sembridge.surfaces import BINS, Choice, Projected

Tensor = Any


@lru_cache(maxsize=1)
def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except (ImportError, RuntimeError) as error:
        raise BadInput(f"torch kernels need the extra: sembridge[torch] ({error})") from error


def order_keys(values: Tensor) -> Tensor:
    """As :func:`sembridge.kernels.order_keys`."""
    torch = _torch()
    wide = values.to(torch.float64) + 0.0
    bits = wide.view(torch.int64)
    ordered = bits ^ ((bits >> 63) & NAN_KEY)
    return torch.where(torch.isnan(wide), torch.full_like(bits, NAN_KEY), ordered)


def first_largest(keys: Tensor) -> Tensor:
    """Position of the largest key along the last axis, the lowest on ties."""
    torch = _torch()
    positions = torch.arange(keys.shape[-1], device=keys.device)
    best = keys == keys.amax(dim=-1, keepdim=True)
    return torch.where(best, positions, keys.shape[-1]).amin(dim=-1)


def largest(keys: Tensor, k: int) -> Tensor:
    """As :func:`sembridge.kernels.largest`."""
    torch = _torch()
    if k == 0:
        return torch.empty(0, dtype=torch.int64, device=keys.device)
    least = torch.topk(keys, k).values[-1]
    above = torch.nonzero(keys > least).flatten()
    ties = torch.nonzero(keys == least).flatten()[: k - above.numel()]
    order = torch.sort(keys[above], descending=True, stable=True).indices
    return torch.cat((above[order], ties))


def exponentials(values: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`sembridge.kernels.exponentials`."""
    torch = _torch()
    scaled = torch.clamp(values.to(torch.float64) * LOG2E, -LARGEST, LARGEST)
    exponent = torch.floor(scaled + 0.5)
    rest = (scaled - exponent) * LN2
    total = torch.full_like(rest, 1.0 / factorial(14))
    for i in range(13, -1, -1):
        total = total * rest
        total = total + 1.0 / factorial(i)
    return exponent, torch.floor(total * 2.0**FRACTION_BITS + 0.5).to(torch.int64)


def exponential_sum(row: Tensor) -> tuple[float, Array]:
    """As :func:`sembridge.kernels.exponential_sum`."""
    torch = _torch()
    bins = torch.zeros(BINS, dtype=torch.int64, device=row.device)
    wide = row.to(torch.float64)
    if bool(torch.isnan(wide).any()):
        return float("nan"), bins.cpu().numpy()
    if bool(torch.isposinf(wide).any()):
        return float("inf"), bins.cpu().numpy()
    exponent, q = exponentials(wide[torch.isfinite(wide)])
    if exponent.numel() == 0:
        return float("-inf"), bins.cpu().numpy()
    top = float(exponent.max())
    below = top - exponent
    kept = below < BINS
    bins.index_add_(0, below[kept].to(torch.int64), q[kept])
    return top, bins.cpu().numpy()


def choose_one(row: Tensor, choice: Choice) -> int:
    """As :func:`sembridge.kernels.choose_one`; the noise is made on the host and copied."""
    torch = _torch()
    work = row if row.dtype == torch.float64 else row.to(torch.float32)
    if choice.bias:
        columns, values = zip(*choice.bias, strict=True)
        work = work.clone()
        work[list(columns)] += torch.tensor(values, dtype=torch.float32, device=row.device)
    left = torch.ones(row.numel(), dtype=torch.bool, device=row.device)
    if choice.allowed is not None:
        left[:] = False
        left[list(choice.allowed)] = True
    left[list(choice.banned)] = False
    among = torch.nonzero(left).flatten()
    work = work[among]
    temperature = float(np.float32(choice.temperature))
    if temperature == 0 or bool(torch.isnan(work).any()):
        return int(among[first_largest(order_keys(work))])
    scores = work.to(torch.float64) / temperature
    kept = _nucleus(scores, choice)
    drawn = torch.as_tensor(noise(choice, row.numel()), device=row.device)[among[kept]]
    return int(among[kept[first_largest(order_keys(scores[kept] + drawn))]])


def _nucleus(scores: Tensor, choice: Choice) -> Tensor:
    torch = _torch()
    top_p = float(np.float32(choice.top_p))
    if choice.top_k == 0 and top_p == 1:
        return torch.arange(scores.numel(), device=scores.device)
    ordered = largest(order_keys(scores), min(choice.top_k, scores.numel()) or scores.numel())
    if top_p < 1 and bool(torch.isfinite(scores[ordered[0]])):
        finite = ordered[torch.isfinite(scores[ordered])]
        exponent, q = exponentials(scores[finite])
        below = torch.clamp(exponent.max() - exponent, max=63.0).to(torch.int64)
        reached = torch.cumsum(q >> below, 0)
        wanted = ceil(Fraction(top_p) * int(reached[-1]))
        ordered = finite[: int((reached < wanted).sum()) + 1]
    return torch.sort(ordered).values


def _argmax(rows: Tensor, projected: Projected, choices: Sequence[Choice]) -> Array:
    if rows.shape[0] == 0:
        return np.empty(0, numpy_dtype(projected.dtype))
    return first_largest(order_keys(rows)).cpu().numpy().astype(numpy_dtype(projected.dtype))


def _choose(rows: Tensor, projected: Projected, choices: Sequence[Choice]) -> Array:
    tokens = [choose_one(row, choice) for row, choice in zip(rows, choices, strict=True)]
    return np.asarray(tokens, numpy_dtype(projected.dtype))


def _top_logprobs(rows: Tensor, projected: Projected, choices: Sequence[Choice]) -> Array:
    out = np.zeros(rows.shape[0], result_dtype(projected))
    tokens = (_choose if choices else _argmax)(rows, projected, choices)
    for r, row in enumerate(rows):
        keys, token = order_keys(row), int(tokens[r])
        first = largest(keys, projected.k)
        logsumexp = log_of_sum(*exponential_sum(row))
        rank = int((keys >= keys[token]).sum())
        value, values = _host(row[token].reshape(1))[0], _host(row[first])
        fill(out[r : r + 1], logsumexp, token, value, rank, first.cpu().numpy(), values)
    return out


def _valid(rows: Tensor, projected: Projected, offset: int) -> Tensor:
    valid = rows[:, : max((projected.vocabulary or 0) - offset, 0)]
    return valid if valid.shape[1] else rows.new_full((rows.shape[0], 1), -np.inf)


def _host(values: Tensor) -> Array:
    """Values on the host in float64, which holds every dtype's exactly."""
    return values.to(_torch().float64).cpu().numpy()


def _dtype_name(rows: Tensor) -> str:
    return str(rows.dtype).removeprefix("torch.")


def _local_argmax(rows: Tensor, projected: Projected, offset: int) -> Array:
    out = np.zeros(rows.shape[0], record_dtype(projected.partial, _dtype_name(rows)))
    last = (projected.vocabulary or 1) - 1
    for r, row in enumerate(_valid(rows, projected, offset)):
        at = int(first_largest(order_keys(row)))
        out["value"][r], out["id"][r] = _host(row[at : at + 1])[0], min(at + offset, last)
    return out


def _local_top(rows: Tensor, projected: Projected, offset: int) -> Array:
    last, size = (projected.vocabulary or 1) - 1, max(projected.k, 1)
    out = np.zeros(rows.shape[0], record_dtype(projected.partial, _dtype_name(rows)))
    values = out["values"].reshape(len(out), size)
    ids = out["ids"].reshape(len(out), size)
    values[:], ids[:] = -np.inf, last
    for r, row in enumerate(_valid(rows, projected, offset)):
        keys = order_keys(row)
        first = largest(keys, min(size, keys.numel()))
        values[r, : first.numel()] = _host(row[first])
        ids[r, : first.numel()] = np.minimum(first.cpu().numpy() + offset, last)
        out["ties"][r] = int((keys == keys[first[0]]).sum()) if offset <= last else 0
        out["exponent"][r], out["bins"][r] = exponential_sum(row)
    return out


TORCH_KERNELS: dict[str, Kernel] = {
    "argmax": Kernel(_argmax),
    "sharded_argmax": Kernel(_argmax, _local_argmax, KERNELS["sharded_argmax"].combine),
    "top_logprobs": Kernel(_top_logprobs),
    "sharded_top_logprobs": Kernel(
        _top_logprobs, _local_top, KERNELS["sharded_top_logprobs"].combine
    ),
    "choose": Kernel(_choose),
}
"""The torch kernel of each registered projection; rows are tensors, results are records."""
