"""The kernels against plain definitions: order, log-sum-exp, shards, keyed draws, modifiers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp

from sembridge.kernels import (
    KERNELS,
    argmax,
    choose_one,
    exponential_sum,
    exponentials,
    log_of_sum,
    logarithm,
    noise,
    numpy_dtype,
    pack,
    record_dtype,
    result_dtype,
    unpack,
)
from sembridge.surfaces import (
    Choice,
    ChosenTokens,
    ShardedTokens,
    ShardedTopLogprobs,
    Surface,
    Tokens,
    TopLogprobs,
)
from tests.strategies import choices
from tests.surfaces.rows import DTYPES, INF, NAN, REVEALING, in_order, revealing, rows


def top(array, k, choices=()):
    surface = TopLogprobs(k=k, choices=choices)
    return KERNELS["top_logprobs"].whole(array, surface.projected, choices)


def test_every_registered_projection_has_a_kernel_and_no_other():
    surfaces = [
        Tokens(),
        ShardedTokens(vocabulary=1),
        TopLogprobs(k=1),
        ShardedTopLogprobs(k=1, vocabulary=1),
        ChosenTokens(choices=()),
    ]
    projected = {s.projected.name: s.projected for s in surfaces}
    projecting = {s for s in Surface.__args__ if s.__name__ not in ("Complete", "Logprobs")}
    assert {type(s) for s in surfaces} == projecting
    assert set(projected) == set(KERNELS)
    for name, kernel in KERNELS.items():
        assert (kernel.local is None) == (projected[name].combine is None)
        assert (kernel.combine is None) == (projected[name].combine is None)


# order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_are_in_argmaxs_order(dtype):
    array = revealing(dtype)
    found = top(array, 6)
    for row, record in zip(array, found, strict=True):
        assert record["ids"].tolist() == in_order(row)
        assert record["token"] == in_order(row)[0]
    assert argmax(array).tolist() == found["token"].tolist()


@given(rows(), st.integers(0, 12))
def test_the_k_largest_of_any_row(array, k):
    k = min(k, array.shape[1])
    found = top(array, k)
    for row, record in zip(array, found, strict=True):
        ordered = in_order(row)
        assert np.atleast_1d(record["ids"]).tolist() == ordered[:k] if k else True
        assert record["token"] == ordered[0]
        first = float(row[ordered[0]])
        equal = [x for x in row.astype(float) if x == first or (x != x and first != first)]
        assert record["rank"] == len(equal)


# log-sum-exp -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_probabilities_are_log_softmaxs(dtype):
    array = revealing(dtype)
    with np.errstate(invalid="ignore"):
        wide = array.astype(np.float64)
        expected = log_softmax(wide, axis=1)
    found = top(array, 6)
    for name, ours, theirs, row in zip(REVEALING, found, expected, wide, strict=True):
        got = np.empty(6, np.float32)
        got[ours["ids"]] = ours["logprobs"]
        if np.isinf(row.max()):
            continue
        assert np.allclose(got, theirs, rtol=3e-7, atol=1e-9, equal_nan=True), name
        assert ours["token_logprob"] == ours["logprobs"][0] or np.isnan(row).any()


def test_log_sum_exp_of_special_rows():
    def of(*row):
        return float(top(np.array([row], np.float32), 1)["logsumexp"][0])

    assert math.isnan(of(1, NAN, INF))
    assert of(1, INF, 2) == INF
    assert of(-INF, -INF) == -INF
    assert of(-INF, 3.0) == 3.0
    assert of(0, 0, 0, 0) == np.float32(math.log(4))


def test_log_probabilities_of_special_rows_are_v_minus_log_sum_exp():
    array = np.array([[1, INF, -INF], [-INF, -INF, -INF], [1, NAN, 2]], np.float32)
    found = top(array, 3)["logprobs"]
    assert [[str(x) for x in row] for row in found] == [
        ["nan", "-inf", "-inf"],
        ["nan"] * 3,
        ["nan"] * 3,
    ]
    patterns = {x.tobytes() for x in found.ravel() if np.isnan(x)}
    assert patterns == {np.float32("nan").tobytes()}


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=200))
def test_log_sum_exp_is_within_a_billionth(values):
    array = np.array(values)
    found = log_of_sum(*exponential_sum(array))
    assert abs(found - logsumexp(array)) <= 1e-9 + 4e-16 * abs(found)


def test_log_sum_exp_of_a_real_vocabulary():
    row = np.random.default_rng(0).normal(0, 4, 200_064).astype(np.float32)
    found = log_of_sum(*exponential_sum(row))
    assert abs(found - logsumexp(row.astype(np.float64))) < 1e-9
    shuffled = np.random.default_rng(1).permutation(row)
    assert log_of_sum(*exponential_sum(shuffled)) == found


@given(st.floats(-700, 700))
def test_exponentials_are_close(value):
    exponent, q = exponentials(np.array([value]))
    assert math.isclose(math.ldexp(int(q[0]), int(exponent[0]) - 32), math.exp(value), rel_tol=1e-9)


@given(st.floats(5e-324, 1.7e308))
def test_logarithms_are_close(value):
    assert math.isclose(
        logarithm(np.array([value]))[0], math.log(value), rel_tol=1e-15, abs_tol=1e-16
    )


# shards ----------------------------------------------------------------------------------------


def sharded(array, shards, vocabulary, surface):
    """Each shard's record by the local kernel, the last shards padded with bait."""
    width = -(-array.shape[1] // shards)
    padded = np.full((len(array), shards * width), 50000.0).astype(array.dtype)
    padded[:, : array.shape[1]] = array
    kernel, projected = KERNELS[surface.projected.name], surface.projected
    partials = [
        kernel.local(padded[:, i * width : (i + 1) * width], projected, i * width)
        for i in range(shards)
    ]
    for partial in partials:
        assert partial.nbytes == projected.partial_bytes((len(array), width), array.dtype.name)
    return partials, kernel, projected


@settings(max_examples=300)
@given(rows(), st.integers(1, 7), st.integers(0, 4), st.randoms(use_true_random=False))
def test_combined_shards_are_the_whole_bit_for_bit(array, shards, k, rng):
    vocabulary = array.shape[1]
    k = min(k, vocabulary)
    for surface in (
        ShardedTokens(vocabulary=vocabulary),
        ShardedTopLogprobs(k=k, vocabulary=vocabulary),
    ):
        partials, kernel, projected = sharded(array, shards, vocabulary, surface)
        rng.shuffle(partials)
        combined = kernel.combine(partials, projected)
        whole = kernel.whole(array, projected, ())
        assert combined.dtype == whole.dtype == result_dtype(projected)
        assert combined.tobytes() == whole.tobytes()
    assert combined.tobytes() == top(array, k).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shards", [1, 2, 3, 4, 5, 6, 8])
def test_revealing_rows_over_uneven_shards(dtype, shards):
    array = revealing(dtype)
    surface = ShardedTopLogprobs(k=4, vocabulary=6)
    partials, kernel, projected = sharded(array, shards, 6, surface)
    assert kernel.combine(partials, projected).tobytes() == top(array, 4).tobytes()


@pytest.mark.parametrize("ids", ["int32", "int64"])
def test_a_vocabulary_above_2_24_keeps_exact_global_indices(ids):
    vocabulary, width = 2**24 + 9, 2**22 + 3
    for surface in (
        ShardedTokens(vocabulary=vocabulary, output_dtype=ids),
        ShardedTopLogprobs(k=2, vocabulary=vocabulary, output_dtype=ids),
    ):
        kernel, projected = KERNELS[surface.projected.name], surface.projected
        partials = []
        for offset in range(0, vocabulary, width):
            shard = np.zeros((1, 64), np.float32)
            shard[0, 5] = 1 + (offset + 5) / 2**24
            partials.append(kernel.local(shard, projected, offset))
        last = kernel.combine(partials, projected)
        token = last if last.dtype.names is None else last["token"]
        assert token.tolist() == [4 * width - width + 5]
        assert token.dtype == np.dtype(ids)


def test_a_whole_vocabulary_above_2_24():
    row = np.full((1, 2**24 + 3), -INF, np.float16)
    row[0, 2**24 + 1 :] = 1
    projected = TopLogprobs(k=3).projected
    found = KERNELS["top_logprobs"].whole(row, projected, ())
    assert found["token"].tolist() == [2**24 + 1]
    assert found["ids"].tolist() == [[2**24 + 1, 2**24 + 2, 0]]
    assert found["logsumexp"][0] == np.float32(math.log(2 * math.e))


def test_a_masked_row_ties_into_padding():
    """The last real column and the stand-in of an empty shard are the same candidate."""
    array = np.full((1, 3), -INF, np.float32)
    surface = ShardedTopLogprobs(k=3, vocabulary=3)
    partials, kernel, projected = sharded(array, 7, 3, surface)
    assert kernel.combine(partials, projected)["ids"].tolist() == [[0, 1, 2]]


# records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["int32", "int64"])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_a_record_takes_the_bytes_that_the_footprint_counts(k, ids):
    projected = TopLogprobs(k=k, output_dtype=ids).projected
    found = KERNELS["top_logprobs"].whole(revealing("float32"), projected, ())
    assert found.nbytes == projected.output_bytes((len(REVEALING), 6))
    size = 4 if ids == "int32" else 8
    assert found.dtype.itemsize == size * (1 + k) + 4 * (3 + k)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_an_empty_batch_gives_nothing(name):
    surface = {
        "argmax": Tokens(),
        "choose": ChosenTokens(choices=()),
        "top_logprobs": TopLogprobs(k=2),
        "sharded_argmax": ShardedTokens(vocabulary=4),
        "sharded_top_logprobs": ShardedTopLogprobs(k=2, vocabulary=4),
    }[name]
    kernel, projected = KERNELS[name], surface.projected
    empty = np.empty((0, 4), np.float32)
    assert kernel.whole(empty, projected, ()).nbytes == 0
    if kernel.local and kernel.combine:
        partial = kernel.local(empty, projected, 0)
        assert kernel.combine([partial], projected).nbytes == 0


# choices ---------------------------------------------------------------------------------------


@given(rows(), st.data())
def test_a_greedy_choice_among_all_is_argmax(array, data):
    for row, token in zip(array, argmax(array), strict=True):
        assert choose_one(row, Choice()) == token


@given(rows(), st.data())
def test_a_choice_is_never_a_masked_column(array, data):
    columns = array.shape[1]
    for row in array:
        choice = data.draw(choices(columns).filter(lambda c: not c.misfits(columns)))
        token = choose_one(row, choice)
        assert token not in choice.banned
        assert choice.allowed is None or token in choice.allowed
        assert choose_one(row, unpack(pack([choice]))[0]) == token


@given(rows(), st.integers(0, 2**62), st.integers(0, 2**62))
def test_top_k_1_and_a_tiny_nucleus_are_argmax(array, seed, position):
    for row, token in zip(array, argmax(array), strict=True):
        key = {"temperature": 0.8, "seed": seed, "position": position}
        assert choose_one(row, Choice(top_k=1, **key)) == token
        if np.isfinite(row.astype(float)[token]):
            assert choose_one(row, Choice(top_p=1e-6, **key)) == token


@pytest.mark.parametrize("top_k", [0, 2, 4])
@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.6])
def test_draws_follow_the_filtered_distribution(top_k, top_p):
    row = np.array([0.1, 1.3, 2.0, -0.5, 1.3, 0.7], np.float32)
    temperature = 0.9
    p = np.exp(row / np.float32(temperature)).astype(float)
    p /= p.sum()
    ordered = in_order(row)[: top_k or 6]
    p = np.array([p[i] if i in ordered else 0 for i in range(6)])
    p /= p.sum()
    reached, kept = 0.0, []
    for i in ordered:
        if reached < top_p:
            kept.append(i)
        reached += p[i]
    p = np.array([p[i] if i in kept else 0 for i in range(6)])
    p /= p.sum()
    draws = 2500
    counts = np.zeros(6)
    for position in range(draws):
        choice = Choice(
            temperature=temperature, top_k=top_k, top_p=top_p, seed=11, position=position
        )
        counts[choose_one(row, choice)] += 1
    assert set(np.flatnonzero(counts)) == set(kept)
    error = np.abs(counts / draws - p)
    assert (error < 5 * np.sqrt(p * (1 - p) / draws) + 1e-12).all()


def test_the_nucleus_is_cut_exactly():
    """Two equal columns hold exactly half each, so a nucleus of one half is one of them."""
    row = np.array([1.0, 1.0], np.float32)
    drawn = {
        choose_one(row, Choice(temperature=1, top_p=0.5, seed=1, position=i)) for i in range(64)
    }
    assert drawn == {0}
    more = float(np.nextafter(np.float32(0.5), np.float32(1)))
    drawn = {
        choose_one(row, Choice(temperature=1, top_p=more, seed=1, position=i)) for i in range(64)
    }
    assert drawn == {0, 1}
    assert Fraction(more) > Fraction(1, 2)


def test_noise_is_a_function_of_key_and_column_alone():
    key = Choice(temperature=1, seed=7, position=3)
    assert np.array_equal(noise(key, 1000)[:10], noise(key, 10))
    others = [Choice(temperature=1, seed=8, position=3), Choice(temperature=1, seed=7, position=4)]
    assert all((noise(other, 10) != noise(key, 10)).all() for other in others)
    assert np.isfinite(noise(key, 100_000)).all()


def philox(counter: int, key: tuple[int, int]) -> list[int]:
    """Philox4x64-10 (Salmon et al., 2011), word by word."""
    c, k, mask = [counter, 0, 0, 0], list(key), 2**64 - 1
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [second >> 64 ^ c[1] ^ k[0], second & mask, first >> 64 ^ c[3] ^ k[1], first & mask]
        k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
    return c


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(1, 9))
def test_noise_is_gumbel_of_philox_words(seed, position, columns):
    key = (seed % 2**64, position)
    words = [w for block in range(1, 4) for w in philox(block, key)][:columns]
    uniform = [((w >> 12) + 0.5) / 2**52 for w in words]
    found = noise(Choice(seed=seed, position=position), columns)
    expected = [-math.log(-math.log(u)) for u in uniform]
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-15)


def test_biases_are_added_in_float32():
    row = np.array([1.0, 0.0], numpy_dtype("bfloat16"))
    assert choose_one(row, Choice(bias=((1, 1.0000001),))) == 1
    assert choose_one(row, Choice(bias=((1, 1.00000001),))) == 0
    wide = np.array([2.0**30, 0.0], np.float64)
    assert choose_one(wide, Choice(bias=((1, 2.0**30),))) == 0


def test_a_not_a_number_is_drawn_unless_masked():
    row = np.array([1.0, NAN, 2.0], np.float32)
    assert choose_one(row, Choice(temperature=1, seed=0, position=0)) == 1
    assert choose_one(row, Choice(banned=(1,))) == 2


def test_log_probabilities_beside_a_choice_are_of_the_unmodified_logits():
    array = np.array([[3.0, 1.0, 2.0]], np.float32)
    plain, modified = top(array, 2), top(array, 2, (Choice(banned=(0,)),))
    assert (plain["token"][0], modified["token"][0]) == (0, 2)
    assert (plain["rank"][0], modified["rank"][0]) == (1, 2)
    assert modified["token_logprob"][0] == modified["logprobs"][0, 1]
    for field in ("ids", "logprobs", "logsumexp"):
        assert np.array_equal(plain[field], modified[field])


@given(st.lists(choices(50), max_size=4))
def test_choices_travel_as_the_bytes_they_are_counted_at(drawn):
    packed = pack(drawn)
    surface = ChosenTokens(choices=tuple(drawn))
    assert packed.nbytes == surface.projected.parameter_bytes
    again = unpack(packed)
    assert pack(again).tobytes() == packed.tobytes()
    assert [c.allowed for c in again] == [c.allowed for c in drawn]
    assert [c.seed or 0 for c in again] == [c.seed or 0 for c in drawn]


def test_records_are_packed():
    for surface in (TopLogprobs(k=3), ShardedTopLogprobs(k=3, vocabulary=9)):
        record = surface.projected.partial or surface.projected.row
        dtype = record_dtype(record, "bfloat16")
        assert dtype.itemsize == sum(dtype[name].itemsize for name in dtype.names)


def test_results_are_golden(golden):
    """The same bytes on every machine: nothing but single IEEE operations stands behind them."""
    lines = []
    for dtype in DTYPES:
        for name, row in zip(REVEALING, revealing(dtype), strict=True):
            record = top(row[None], 3)
            lines.append(f"top_logprobs(3) {dtype} {name}: {record.tobytes().hex()}")
    row = np.random.default_rng(5).normal(0, 3, 1000).astype(np.float32)
    for position in range(8):
        choice = Choice(temperature=0.7, top_k=50, top_p=0.9, seed=-3, position=position)
        lines.append(f"choose position {position}: {choose_one(row, choice)}")
    lines.append(f"noise: {noise(Choice(seed=7, position=3), 8).tobytes().hex()}")
    golden("kernels.txt", "\n".join(lines) + "\n")
