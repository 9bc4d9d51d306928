"""Torch kernels against NumPy's: the same bytes, on the CPU and on a device where there is one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembridge import kernels, torch_kernels
from sembridge.errors import BadInput
from sembridge.kernels import KERNELS
from sembridge.surfaces import (
    Choice,
    ChosenTokens,
    ShardedTokens,
    ShardedTopLogprobs,
    Tokens,
    TopLogprobs,
)
from sembridge.torch_kernels import TORCH_KERNELS
from tests.strategies import choices
from tests.surfaces.rows import DTYPES, revealing, rows


def test_every_kernel_has_a_torch_twin():
    assert set(TORCH_KERNELS) == set(KERNELS)


def test_a_missing_or_broken_torch_is_one_clear_message(monkeypatch):
    def missing(name):
        raise RuntimeError("libhccl.so: cannot open shared object file")

    torch_kernels._torch.cache_clear()
    monkeypatch.setattr(torch_kernels.importlib, "import_module", missing)
    with pytest.raises(BadInput, match=r"sembridge\[torch\].*libhccl"):
        TORCH_KERNELS["argmax"].whole(np.zeros((1, 2)), Tokens().projected, ())
    torch_kernels._torch.cache_clear()


def tensor(array):
    """The same rows as a torch tensor, on the accelerator where there is one."""
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, array.dtype.name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.tensor(array.astype(np.float64)).to(dtype).to(device)


def compare(name, array, surface, drawn=()):
    projected = surface.projected
    ours = KERNELS[name].whole(array, projected, drawn)
    theirs = TORCH_KERNELS[name].whole(tensor(array), projected, drawn)
    assert theirs.dtype == ours.dtype
    assert theirs.tobytes() == ours.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_revealing_rows(dtype):
    array = revealing(dtype)
    compare("argmax", array, Tokens())
    for k in (0, 1, 6):
        compare("top_logprobs", array, TopLogprobs(k=k))


@settings(max_examples=100)
@given(rows(), st.data())
def test_any_rows_and_choices(array, data):
    count, columns = array.shape
    fitting = choices(columns).filter(lambda c: not c.misfits(columns))
    drawn = tuple(data.draw(fitting) for _ in range(count))
    compare("argmax", array, Tokens())
    compare("choose", array, ChosenTokens(choices=drawn), drawn)
    compare("top_logprobs", array, TopLogprobs(k=min(2, columns), choices=drawn), drawn)


@settings(max_examples=60)
@given(rows(), st.integers(1, 4))
def test_partial_records_of_shards(array, shards):
    vocabulary = array.shape[1]
    width = -(-vocabulary // shards)
    padded = np.zeros((len(array), shards * width)).astype(array.dtype)
    padded[:, :vocabulary] = array
    for surface in (
        ShardedTokens(vocabulary=vocabulary),
        ShardedTopLogprobs(k=min(2, vocabulary), vocabulary=vocabulary),
    ):
        projected = surface.projected
        ours, theirs = KERNELS[projected.name], TORCH_KERNELS[projected.name]
        for i in range(shards):
            shard = padded[:, i * width : (i + 1) * width]
            a = ours.local(shard, projected, i * width)
            b = theirs.local(tensor(shard), projected, i * width)
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()


def test_a_real_vocabulary():
    array = np.random.default_rng(3).normal(0, 4, (2, 151_936)).astype(np.float32)
    key = Choice(temperature=0.9, top_k=1000, top_p=0.9, seed=1, position=5)
    compare("top_logprobs", array, TopLogprobs(k=20, choices=(key, key)), (key, key))
    ours, theirs = (
        kernels.exponential_sum(array[0]),
        torch_kernels.exponential_sum(tensor(array[0])),
    )
    assert ours[0] == theirs[0]
    assert np.array_equal(ours[1], theirs[1])
