"""Every field of the request types is classified, and stands neutral at its own default."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from sembridge.serving import openai, vllm
from sembridge.serving.fields import Effect, Field, Flag, Record, Schema, plain, table

DATA = Path(__file__).parents[1] / "data"
VLLM = json.loads((DATA / f"vllm-{vllm.VERSION}-fields.json").read_text())["types"]
OPENAI = json.loads((DATA / f"openai-{openai.VERSION}-fields.json").read_text())["types"]

SERVED = {
    "SamplingParams": vllm.SAMPLING,
    "ChatCompletionRequest": openai.CHAT,
    "CompletionRequest": openai.COMPLETIONS,
    "ResponsesRequest": openai.RESPONSES,
}
ACTIVE_BY_DEFAULT = {
    "temperature": "vLLM samples at 1.0 where nothing else is said",
    "top_logprobs": "0 counts where it is sent",
}


def inner(schema: Schema, name: str) -> dict[str, Field]:
    record = schema.fields[name].kind
    assert isinstance(record, Record)
    return record.fields


@pytest.mark.parametrize("kind", SERVED)
def test_recorded_vllm_fields_are_classified(kind: str) -> None:
    assert set(VLLM[kind]) <= set(SERVED[kind].fields)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("StructuredOutputsParams", "structured_outputs"),
        ("RepetitionDetectionParams", "repetition_detection"),
    ],
)
def test_recorded_vllm_records_are_classified(kind: str, name: str) -> None:
    assert set(VLLM[kind]) == set(inner(vllm.SAMPLING, name))


@pytest.mark.parametrize("kind", SERVED)
def test_vllm_defaults_are_well_formed_and_neutral(kind: str) -> None:
    for name, recorded in VLLM[kind].items():
        default = recorded.get("default")
        field = SERVED[kind].fields[name]
        if default is None or isinstance(field.kind, Record):
            continue
        field.kind.verify(default, name)
        active = field.weigh(default) is not Effect.NEUTRAL
        assert active == (name in ACTIVE_BY_DEFAULT), name


@pytest.mark.parametrize("schema", [openai.CHAT, openai.COMPLETIONS, openai.RESPONSES])
def test_recorded_openai_fields_are_classified(schema: Schema) -> None:
    names = schema.name
    assert set(OPENAI[names]) <= set(schema.fields)


@pytest.mark.skipif(not importlib.util.find_spec("openai"), reason="openai is not installed")
def test_installed_openai_fields_are_classified() -> None:
    from openai.types import completion_create_params as completions
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as responses
    from openai.types.responses import response_text_config_param as text
    from openai.types.shared_params import reasoning

    def hints(*types: Any) -> set[str]:
        return set().union(*map(get_type_hints, types))

    def body(module: Any, name: str) -> set[str]:
        return hints(
            getattr(module, f"{name}ParamsNonStreaming"), getattr(module, f"{name}ParamsStreaming")
        )

    assert body(chat, "CompletionCreate") <= set(openai.CHAT.fields)
    assert body(completions, "CompletionCreate") <= set(openai.COMPLETIONS.fields)
    assert body(responses, "ResponseCreate") <= set(openai.RESPONSES.fields)
    assert hints(reasoning.Reasoning) <= set(inner(openai.RESPONSES, "reasoning"))
    assert hints(text.ResponseTextConfigParam) <= set(inner(openai.RESPONSES, "text"))


@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vllm is not installed")
def test_installed_vllm_fields_are_classified() -> None:
    from vllm.sampling_params import SamplingParams  # pyright: ignore[reportMissingImports]

    assert set(SamplingParams.__struct_fields__) <= set(vllm.SAMPLING.fields)


def test_a_field_is_declared_once() -> None:
    with pytest.raises(ValueError, match="'a' is declared twice"):
        table(plain(Flag(), "a"), plain(Flag(), "a"))
