"""Table 3 at small dimensions: exact shards, distinct partials, one completed output."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from sembridge.errors import BadInput
from sembridge.live import mlp
from sembridge.live.backends import torch
from sembridge.live.mlp import random_weights, read_weights, run_row, same_bits, table3

SMALL = random_weights(64, 192)


def here(values):
    return [value.clone() for value in values]


def summed(partials):
    total = sum(partials[1:], start=partials[0])
    return [total.clone() for _ in partials]


def test_in_process_the_rows_hold_and_the_errors_are_bfloat16s():
    for tokens in (1, 8):
        row = run_row(SMALL, tokens, deliver=here, complete=summed)
        assert row.holds
        assert 0.05 < row.relative_l2_percent < 0.6
        assert 0.02 < row.max_error_over_peak_percent < 1.0


def flipped(values):
    """One bit of one element of one shard is wrong: far below any tolerance."""
    wrong = here(values)
    wrong[1].view(torch().int16)[0, 0] ^= 1
    return wrong


BROKEN = {
    "a bit": ({"deliver": flipped, "complete": summed}, (False, True, True)),
    "lanes swapped": ({"deliver": lambda s: here(s)[::-1], "complete": summed},
                      (False, True, True)),
    "never completed": ({"deliver": here, "complete": here}, (True, True, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_goes_wrong_shows_in_its_column(name):
    exchanges, expected = BROKEN[name]
    row = run_row(SMALL, 8, **exchanges)
    assert (row.bitwise, row.distinct, row.equal) == expected
    if name != "a bit":
        assert row.relative_l2_percent > 10


def test_equal_lanes_are_not_distinct():
    half = SMALL.gate[:96]
    same = mlp.Weights(
        gate=torch().cat([half, half]), up=torch().cat([SMALL.up[:96]] * 2),
        down=torch().cat([SMALL.down[:, :96]] * 2, dim=1), origin="twice the same",
    )  # fmt: skip
    assert not run_row(same, 2, deliver=here, complete=summed).distinct


def test_over_the_boundary_bytes_are_the_plans():
    ((row, wire, sent),) = table3(SMALL, (8,))
    assert row.holds
    assert sent == wire
    assert wire["mlp.activation"].frames == 2
    assert wire["mlp.activation"].payload == 8 * 192 * 2
    # The completed sum goes back once, as the partial edge's contract has it.
    assert wire["mlp.partial"].frames == 1


def test_weights_are_read_by_name_shape_and_dtype(tmp_path):
    save = pytest.importorskip("safetensors.torch").save_file
    path = tmp_path / "layer.safetensors"
    tensors = {mlp.NAMES[part]: getattr(SMALL, part) for part in ("gate", "up", "down")}
    save({**tensors, "model.norm.weight": torch().ones(3)}, path)
    read = read_weights(path, 64, 192)
    assert all(same_bits(getattr(read, p), getattr(SMALL, p)) for p in ("gate", "up", "down"))
    assert "layer 0 of layer.safetensors" in read.origin
    with pytest.raises(BadInput, match=r"gate_proj.weight: BF16 \[192, 64\], not BF16 \[17408"):
        read_weights(path)
    with pytest.raises(BadInput, match=r"layers.1.*no such tensor"):
        read_weights(path, 64, 192, layer=1)
    save({**tensors, mlp.NAMES["down"]: SMALL.down.float()}, path)
    with pytest.raises(BadInput, match=r"down_proj.weight: F32"):
        read_weights(path, 64, 192)
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(BadInput, match="not a safetensors file"):
        read_weights(path, 64, 192)
    with pytest.raises(BadInput, match="not a safetensors file"):
        read_weights(tmp_path / "absent", 64, 192)


def test_columns_divide_among_lanes():
    with pytest.raises(BadInput, match="do not divide among 5 lanes"):
        run_row(SMALL, 1, deliver=here, complete=summed, lanes=5)
