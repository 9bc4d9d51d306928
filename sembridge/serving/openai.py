"""OpenAI's chat completions, completions and responses, as OpenAI and as vLLM's server read them.

Read off the ``openai`` package ``VERSION``; tests walk its installed request types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sembridge.errors import BadInput
from sembridge.serving import vllm
from sembridge.serving.fields import (
    Choice,
    Clash,
    Effect,
    Either,
    Field,
    Integer,
    ListOf,
    Record,
    Schema,
    plain,
    table,
)
from sembridge.serving.vllm import ANY, COUNT, FLAG, GRAMMAR, OBJECT, POSITIVE, RETURNED, TEXT

VERSION = "3.57.0"

EFFORT = Choice(("none", "minimal", "low", "medium", "high", "xhigh", "max"))
BUDGETED = "reasoning effort may map to a thinking budget, a counter at the producer"
VERBOSITY = Field(name="verbosity", kind=Choice(("low", "medium", "high")))
HOSTED = "a stored prompt may carry parameters that the request does not show"


def _tools(value: list[Mapping[str, Any]]) -> Effect:
    """Tools whose arguments, or whose input, a grammar constrains; namespaces hold more tools."""
    pending = list(value)
    while pending:
        tool = pending.pop()
        parts = (tool, _record(tool.get("function")), _record(tool.get("custom")))
        if any(part.get("strict") is True or _type(part, "format") == "grammar" for part in parts):
            return Effect.PROJECTION
        inner = tool.get("tools")
        if isinstance(inner, list):
            pending += map(_record, cast("list[object]", inner))
    return Effect.NEUTRAL


def _record(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _type(request: Mapping[str, Any], name: str) -> object:
    """The ``type`` of an object that ``request`` holds under ``name``."""
    return _record(request.get(name)).get("type")


def _named(value: object) -> Effect:
    return Effect.NEUTRAL if value in ("auto", "none") else Effect.PROJECTION


def _include(value: list[str]) -> Effect:
    asked = "message.output_text.logprobs" in value
    return Effect.LOGPROBS if asked else Effect.NEUTRAL


def _modalities(value: list[str]) -> Effect:
    return Effect.FURTHER if "audio" in value else Effect.NEUTRAL


def _format(*more: str) -> Field:
    """The output format; anything but plain text is a grammar."""
    return Field(
        name="type",
        kind=Choice(("text", "json_object", "json_schema", *more)),
        effect=Effect.PROJECTION,
        neutral=("text",),
        note=GRAMMAR,
    )


RESPONSE_FORMAT = Field(
    name="response_format",
    kind=Record(
        table(
            _format("structural_tag"),
            plain(OBJECT, "json_schema"),
            plain(ANY, "format", "structures", "triggers"),
        ),
        required=("type",),
    ),
)


def _choice(*names: str, note: str = GRAMMAR) -> tuple[Field, ...]:
    return tuple(
        Field(
            name=name,
            kind=Either((Choice(("none", "auto", "required")), OBJECT)),
            judge=_named,
            note=note,
        )
        for name in names
    )


def _tool_list(shortest: int) -> Field:
    return Field(
        name="tools",
        kind=ListOf(OBJECT, shortest),
        judge=_tools,
        note="a strict tool or a grammar tool masks the logits once it is called",
    )


STREAM = (
    *plain(FLAG, "stream"),
    Field(
        name="stream_options",
        kind=Record(
            table(plain(FLAG, "include_usage", "include_obfuscation", "continuous_usage_stats"))
        ),
    ),
)
ACCOUNT = (
    *plain(TEXT, "model", "user", "safety_identifier", "prompt_cache_key"),
    *plain(TEXT, "prompt_cache_retention", "service_tier"),
    *plain(OBJECT, "metadata", "prompt_cache_options", "moderation"),
    *plain(FLAG, "store", "parallel_tool_calls"),
)


def _stray_choice(request: Mapping[str, Any]) -> bool:
    return request["tool_choice"] != "none" and not request.get("tools")


STREAMED = Clash(
    field="stream_options",
    message="needs stream: true",
    when=lambda request: bool(request["stream_options"]) and request.get("stream") is not True,
)
PROMPT_STREAMED = Clash(
    field="prompt_logprobs",
    message="not available with stream: true",
    when=lambda request: request["prompt_logprobs"] != 0 and request.get("stream") is True,
)
SCHEMALESS = Clash(
    field="response_format",
    message="json_schema is missing",
    when=lambda request: (
        _type(request, "response_format") == "json_schema"
        and request["response_format"].get("json_schema") is None
    ),
)

CHAT = Schema(
    name="chat completions",
    fields=table(
        ACCOUNT,
        STREAM,
        vllm.SAMPLING_CORE,
        vllm.SEQUENCES,
        vllm.LOGIT_BIAS,
        vllm.SERVED,
        vllm.SERVED_CHAT,
        plain(ListOf(OBJECT), "messages", "functions"),
        plain(POSITIVE, "max_tokens", "max_completion_tokens"),
        plain(OBJECT, "web_search_options"),
        Field(name="logprobs", kind=FLAG, effect=Effect.LOGPROBS, neutral=(False,), note=RETURNED),
        Field(name="top_logprobs", kind=Integer(-1), effect=Effect.LOGPROBS, note=RETURNED),
        RESPONSE_FORMAT,
        _choice("tool_choice", "function_call"),
        _tool_list(1),
        Field(name="reasoning_effort", kind=EFFORT, effect=Effect.PROJECTION, note=BUDGETED),
        VERBOSITY,
        Field(
            name="modalities",
            kind=ListOf(Choice(("text", "audio"))),
            judge=_modalities,
            warning="audio is a further surface beside this one",
        ),
        Field(
            name="audio",
            kind=OBJECT,
            effect=Effect.FURTHER,
            warning="audio is a further surface beside this one",
        ),
        Field(
            name="prediction",
            kind=OBJECT,
            effect=Effect.BLOCK,
            note="predicted outputs deliver a block of tokens with accepted counts",
        ),
        vllm.removed("best_of", POSITIVE, 1),
    ),
    clashes=(
        STREAMED,
        PROMPT_STREAMED,
        SCHEMALESS,
        vllm.MIN_ABOVE_MAX,
        *vllm.REPEATS,
        vllm.CONSTRAINED,
        Clash(
            field="top_logprobs",
            message="needs logprobs: true",
            when=lambda request: (
                request["top_logprobs"] != 0 and request.get("logprobs") is not True
            ),
        ),
        Clash(
            field="logprob_token_ids",
            message="needs logprobs: true",
            when=lambda request: (
                bool(request["logprob_token_ids"]) and request.get("logprobs") is not True
            ),
        ),
        Clash(field="tool_choice", message="needs tools", when=_stray_choice),
        Clash(
            field="function_call",
            message="needs functions",
            when=lambda request: (
                request["function_call"] != "none" and not request.get("functions")
            ),
        ),
        Clash(
            field="continue_final_message",
            message="excludes add_generation_prompt: true",
            when=lambda request: (
                request["continue_final_message"] is True
                and request.get("add_generation_prompt") is True
            ),
        ),
        Clash(
            field="modalities",
            message="audio needs the field audio",
            when=lambda request: "audio" in request["modalities"] and "audio" not in request,
        ),
    ),
)

COMPLETIONS = Schema(
    name="completions",
    fields=table(
        plain(TEXT, "model", "user", "suffix"),
        STREAM,
        vllm.SAMPLING_CORE,
        vllm.SEQUENCES,
        vllm.LOGIT_BIAS,
        vllm.SERVED,
        vllm.SERVED_COMPLETIONS,
        plain(
            Either((TEXT, ListOf(COUNT), ListOf(TEXT), ListOf(ListOf(COUNT)))),
            "prompt",
        ),
        plain(COUNT, "max_tokens"),
        plain(FLAG, "echo"),
        Field(name="logprobs", kind=Integer(-1), effect=Effect.LOGPROBS, note=RETURNED),
        Field(
            name="best_of",
            kind=POSITIVE,
            effect=Effect.FULL,
            neutral=(1,),
            note=vllm.BEST_OF,
        ),
        RESPONSE_FORMAT,
    ),
    clashes=(
        STREAMED,
        PROMPT_STREAMED,
        SCHEMALESS,
        vllm.MIN_ABOVE_MAX,
        *vllm.REPEATS,
        vllm.CONSTRAINED,
        Clash(
            field="logprob_token_ids",
            message="needs logprobs",
            when=lambda request: bool(request["logprob_token_ids"]) and "logprobs" not in request,
        ),
        Clash(field="best_of", message="must not be below n", when=vllm.exceeds("n", "best_of")),
        Clash(
            field="best_of",
            message="above 1 excludes stream: true",
            when=lambda request: request["best_of"] > 1 and request.get("stream") is True,
        ),
    ),
)

RESPONSES = Schema(
    name="responses",
    fields=table(
        ACCOUNT,
        STREAM,
        vllm.SAMPLING_CORE,
        vllm.SERVED_RESPONSES,
        plain(Either((TEXT, ListOf(OBJECT))), "input"),
        plain(TEXT, "instructions", "previous_response_id"),
        plain(POSITIVE, "max_output_tokens", "max_tool_calls"),
        plain(FLAG, "background"),
        plain(OBJECT, "background_options", "access_programs", "image"),
        plain(ListOf(OBJECT), "context_management"),
        plain(Either((TEXT, OBJECT)), "conversation"),
        plain(Choice(("auto", "disabled")), "truncation"),
        Field(name="include", kind=ListOf(TEXT), judge=_include, note=RETURNED),
        Field(name="top_logprobs", kind=Integer(-1), effect=Effect.LOGPROBS, note=RETURNED),
        Field(name="prompt", kind=OBJECT, effect=Effect.FULL, note=HOSTED),
        Field(
            name="reasoning",
            kind=Record(
                table(
                    Field(name="effort", kind=EFFORT, effect=Effect.PROJECTION, note=BUDGETED),
                    plain(TEXT, "summary", "generate_summary", "context"),
                    Field(
                        name="mode",
                        kind=TEXT,
                        effect=Effect.FULL,
                        neutral=("standard",),
                        note="another execution mode than the standard one",
                    ),
                )
            ),
        ),
        Field(
            name="text",
            kind=Record(
                table(
                    VERBOSITY,
                    Field(
                        name="format",
                        kind=Record(
                            table(
                                _format(),
                                plain(TEXT, "name", "description"),
                                plain(OBJECT, "schema"),
                                plain(FLAG, "strict"),
                            ),
                            required=("type",),
                        ),
                    ),
                )
            ),
        ),
        _choice("tool_choice"),
        _tool_list(0),
    ),
    clashes=(
        STREAMED,
        vllm.CONSTRAINED,
        Clash(
            field="structured_outputs",
            message="excludes text.format",
            when=lambda request: request.get("text", {}).get("format") is not None,
        ),
        Clash(
            field="background",
            message="needs store: true",
            when=lambda request: request["background"] is True and request.get("store") is False,
        ),
        Clash(
            field="conversation",
            message="excludes previous_response_id",
            when=lambda request: "previous_response_id" in request,
        ),
    ),
)


def endpoint(body: Mapping[str, Any]) -> Schema:
    """The endpoint that takes ``body``, told by the field that carries its prompt.

    Raises:
        BadInput: no field carries a prompt.
    """
    if body.get("messages") is not None:
        return CHAT
    if any(
        body.get(name) is not None for name in ("input", "previous_response_id", "conversation")
    ):
        return RESPONSES
    prompt = body.get("prompt")
    if isinstance(prompt, dict):
        return RESPONSES
    if prompt is not None or body.get("prompt_embeds") is not None:
        return COMPLETIONS
    raise BadInput("none of messages, prompt and input is there", path="$")
