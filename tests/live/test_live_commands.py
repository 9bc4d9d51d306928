"""The live commands: documents, tables, and exit codes."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from sembridge.live import mlp, parts
from sembridge.live.doctor import smollm2_weights
from sembridge.wire import Framed


@pytest.fixture
def small(monkeypatch):
    """Random models with a small vocabulary, and a narrow MLP."""
    load, drawn = parts.load, mlp.random_weights
    monkeypatch.setattr(parts, "load", lambda name: load(name, vocab_size=101))
    monkeypatch.setattr(mlp, "random_weights", lambda: drawn(64, 192))


def test_live_prints_one_document(small, sembridge):
    ran = sembridge(
        "live", "--model", "qwen3", "--tp", 1, "--tokens", 3, "--surface", "logprobs",
        "--rate", 1000, "--rtt", 0.2, "--json",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert document["holds"]
    assert document["sent"] == document["wire"]
    assert document["consumers_matched"] == [3, 3]
    assert document["decided_by"] == ["logprobs"]
    assert document["switches"] == {
        "forward_aggregation": "mapped", "result_aggregation": "mapped", "result_fanout": False,
    }  # fmt: skip
    assert [op["op"] for op in document["plans"]["result"]] == ["send", "project"]
    # One lane has no slices: a header on each frame, and the complete logits.
    assert document["sent"]["result"] == {
        "frames": 3, "payload": 3 * 101 * 4, "framed": 3 * (101 * 4 + 48),
    }  # fmt: skip
    assert document["link"] == {"kind": "emulated", "rate_bit_s": 1e9, "rtt_s": 0.0002}
    measured = document["volatile"]["link"]
    assert measured["rtt_min_s"] >= 0.0002
    assert measured["rate_bit_s"] < 1.01e9


def test_a_requests_own_ends_are_kept(small, sembridge, tmp_path):
    """Token limits and stop ids act on tokens as they come; strings are refused."""
    body = {"temperature": 0, "max_tokens": 2, "stop_token_ids": [], "ignore_eos": True}
    path = tmp_path / "request.json"
    path.write_text(json.dumps(body))
    ran = sembridge("live", "--model", "qwen3", "--tp", 1, "--request", path, "--json")
    assert (ran.code, json.loads(ran.out)["steps"]) == (0, 2)
    path.write_text(json.dumps({**body, "stop": ["\n"]}))
    refused = sembridge("live", "--model", "qwen3", "--request", path)
    assert (refused.code, refused.out) == (2, "")
    assert "$.stop" in refused.err


def test_live_mlp_writes_what_it_prints(small, sembridge, tmp_path):
    path = tmp_path / "mlp.json"
    ran = sembridge("live-mlp", "--tokens", "1,8", "-o", path, "--json")
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert path.read_text() == ran.out
    assert "random" in document["weights"]
    assert [row["row"]["tokens"] for row in document["rows"]] == [1, 8]
    assert all(row["sent"] == row["wire"] and row["row"]["equal"] for row in document["rows"])
    text = sembridge("live-mlp", "--tokens", "1").out
    assert "bitwise" in text
    assert "distinct ->" in text  # a narrow table wraps the rest


def test_a_row_that_does_not_hold_ends_with_1(small, sembridge, monkeypatch):
    nothing = {"mlp.activation": Framed(frames=0, payload=0, framed=0)}
    row = mlp.Row(
        tokens=1, bitwise=False, distinct=True, equal=True,
        relative_l2_percent=51.0, max_error_over_peak_percent=98.0,
    )  # fmt: skip
    monkeypatch.setattr(mlp, "table3", lambda *args, **kwargs: [(row, nothing, nothing)])
    ran = sembridge("live-mlp")
    assert ran.code == 1
    assert "differs" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["live", "--surface", "soup"], "--surface: no surface 'soup'"),
        (["live", "--rate", "-1"], "--rate: a link has a positive rate"),
        (["live", "--model", "gpt5"], "no model 'gpt5'"),
        (["live", "--model", "qwen3", "--prompt", "Hello"], "--prompt: a model with random"),
        (["live", "--model", "qwen3", "--tp", "3"], "heads"),
        (["live", "--model", "qwen3", "--tp", "2", "--owner", "2"], "--owner: rank 2 of 2 lanes"),
        (["live", "--model", "qwen3", "--head", "smoke"], "no backend 'smoke'"),
        (["live-mlp", "--tokens", "1,x"], "--tokens: token counts"),
        (["live-mlp", "--weights", "no/such/file"], "not a safetensors file"),
    ],
)
def test_what_cannot_run_is_said_before_anything_starts(small, sembridge, arguments, message):
    ran = sembridge(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_real_weights_answer_in_text(sembridge):
    """SmolLM2 across the boundary says what it says in one piece."""
    pytest.importorskip("gguf")
    if smollm2_weights() is None:
        pytest.skip("SmolLM2's weights are not here (make torch)")
    ran = sembridge(
        "live", "--prompt", "What is the capital of France?", "--tokens", 12, "--json"
    )  # fmt: skip
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["text"] == ["The capital of France is Paris."]
    assert document["consumers_matched"] == [document["steps"]] * 2
    assert document["steps"] < 12
    assert document["sent"] == document["wire"]
