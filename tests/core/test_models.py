"""Edges of real models from published configs, as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sembridge.errors import BadInput
from sembridge.lowering import lower
from sembridge.models import (
    Deployment,
    mlp_edges,
    model_edges,
    read_model,
    result_edge,
)
from sembridge.plan import Project
from sembridge.surfaces import Logprobs, Tokens

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
INDEX = json.loads((CONFIGS / "INDEX.json").read_text())

EXPECTED = {
    # hidden, layers, heads, kv_heads, vocab, dtype, intermediate, tied
    "chatglm3-oddkeys.json": (4096, 28, 32, 2, 65024, "float16", 13696, False),
    "deepseek-v3.json": (7168, 61, 128, 128, 129280, "bfloat16", 18432, False),
    "gemma-3-1b.json": (1152, 26, 4, 1, 262144, "bfloat16", 6912, None),
    "gpt-oss-20b.json": (2880, 24, 64, 8, 201088, None, 2880, False),
    "gpt2.json": (768, 12, 12, 12, 50257, None, None, None),
    "llama-3.1-405b.json": (16384, 126, 128, 8, 128256, "bfloat16", 53248, False),
    "minimax-m2.7.json": (3072, 62, 48, 8, 200064, "bfloat16", 1536, False),
    "mixtral-8x7b.json": (4096, 32, 32, 8, 32000, "bfloat16", 14336, False),
    "qwen3-14b.json": (5120, 40, 40, 8, 151936, "bfloat16", 17408, False),
    "qwen3.5-27b.json": (5120, 64, 24, 4, 248320, "bfloat16", 17408, False),
    "qwen3.5-35b-a3b.json": (2048, 40, 16, 2, 248320, "bfloat16", None, False),
    "smollm2-135m.json": (576, 30, 9, 3, 49152, "bfloat16", 1536, True),
}


def config(name):
    return json.loads((CONFIGS / name).read_text())


def test_every_config_is_expected():
    assert set(EXPECTED) == {entry["file"] for entry in INDEX["files"]}


@pytest.mark.parametrize("name", EXPECTED)
def test_published_config(name):
    *numbers, dtype, intermediate, tied = EXPECTED[name]
    if dtype is None:
        with pytest.raises(BadInput, match="dtype") as caught:
            read_model(config(name))
        assert caught.value.path == "$.dtype"
    model = read_model(config(name), dtype=None if dtype else "bfloat16")
    assert [model.hidden, model.layers, model.heads, model.kv_heads, model.vocab] == numbers
    assert model.dtype == (dtype or "bfloat16")
    assert (model.intermediate, model.tied) == (intermediate, tied)
    tp = 3 if model.heads % 2 else 4
    for edge in model_edges(model, Deployment(tp=tp, owner=0)).values():
        lower(edge.contract())


@pytest.mark.parametrize(
    ("name", "tp", "path"),
    [
        ("smollm2-135m.json", 2, "num_attention_heads"),
        ("qwen3.5-27b.json", 16, "num_attention_heads"),
        ("qwen3-14b.json", 16, "num_attention_heads"),
        ("qwen3-14b.json", 0, "--tp"),
        ("qwen3-14b.json", 5, "num_key_value_heads"),
    ],
)
def test_lanes_that_do_not_fit_name_the_key(name, tp, path):
    with pytest.raises(BadInput) as caught:
        model_edges(read_model(config(name)), Deployment(tp=tp))
    assert caught.value.path == path


def test_fewer_kv_heads_than_lanes_are_replicated():
    model = read_model(config("qwen3.5-35b-a3b.json"))
    assert model.kv_heads == 2
    assert set(model_edges(model, Deployment(tp=4))) == {"hidden", "residual", "result"}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"hidden_size": None}, "$.hidden_size"),
        ({"hidden_size": "5120"}, "$.hidden_size"),
        ({"hidden_size": True}, "$.hidden_size"),
        ({"vocab_size": 0}, "$.vocab_size"),
        ({"padded_vocab_size": 152064}, "$.vocab_size"),
        ({"dtype": "float32"}, "$.dtype"),
        ({"torch_dtype": "float33"}, "$.torch_dtype"),
        ({"tie_word_embeddings": "no"}, "$.tie_word_embeddings"),
        ({"text_config": [1]}, "$.text_config"),
        ({"model_type": 3}, "$.model_type"),
    ],
)
def test_what_cannot_be_derived_is_an_error_that_names_the_key(change, path):
    with pytest.raises(BadInput) as caught:
        read_model(config("qwen3-14b.json") | change)
    assert caught.value.path == path


def test_torch_prefixed_dtypes_and_options():
    old = config("qwen3-14b.json") | {"torch_dtype": "torch.float16"}
    assert read_model(old).dtype == "float16"
    padded = read_model(config("chatglm3-oddkeys.json"), valid_vocab=64794)
    edge = result_edge(padded, Deployment(tp=2), Tokens()).contract()
    assert (edge.value.shape[-1], edge.value.valid_last) == (65024, 64794)
    with pytest.raises(BadInput):
        read_model(config("chatglm3-oddkeys.json"), valid_vocab=65025)


def test_mlp_edges_need_an_intermediate_size_that_divides():
    qwen = read_model(config("qwen3-14b.json"))
    named = mlp_edges(qwen, Deployment(tp=2, rows=8))
    assert named["mlp.activation"].edge.value.shape == (8, 8704)
    assert named["mlp.partial"].edge.value.shape == (8, 5120)
    with pytest.raises(BadInput, match="intermediate_size"):
        mlp_edges(read_model(config("gpt2.json"), dtype="float32"), Deployment(tp=2))
    with pytest.raises(BadInput, match="mixture of experts"):
        mlp_edges(read_model(config("deepseek-v3.json")), Deployment(tp=2))


def test_the_surface_decides_where_the_projection_runs():
    model = read_model(config("minimax-m2.7.json"))
    at = {}
    for surface in (Tokens(), Logprobs()):
        ops = lower(result_edge(model, Deployment(tp=4), surface).contract()).ops
        at[type(surface)] = {op.at[0] for op in ops if isinstance(op, Project)}
    assert at == {Tokens: {"p"}, Logprobs: {"c"}}


def test_edges_command(sembridge, tmp_path):
    path = CONFIGS / "qwen3-14b.json"
    ran = sembridge(
        "edges", "--model-config", path, "--tp", 4, "--rows", 4, "--owner", 3, "--json",
        "--mlp", "--export", tmp_path,
    )  # fmt: skip
    assert ran.code == 0
    report = json.loads(ran.out)
    assert [e["edge"] for e in report["edges"]] == [
        "hidden",
        "residual",
        "result",
        "mlp.activation",
        "mlp.partial",
    ]
    result = report["edges"][2]
    assert result["wire"] == {"frames": 1, "payload": 16, "framed": 64}
    assert report["graph_cost"]["cross_startups"] < sum(
        e["footprint"]["cross_startups"] for e in report["edges"]
    )
    for edge in report["edges"]:
        folder = tmp_path / edge["edge"]
        assert sembridge("check", folder / "contract.json", folder / "plan.json").code == 0
    bad = sembridge("edges", "--model-config", CONFIGS / "gpt2.json", "--tp", 1)
    assert (bad.code, bad.out) == (2, "")
    assert "gpt2.json: $.dtype: absent" in bad.err
    assert sembridge("edges", "--model-config", path, "--tp", 4, "--owner", 4).code == 2
    assert sembridge("edges", "--model-config", path, "--tp", 4, "--surface", "soup").code == 2
