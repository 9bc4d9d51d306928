"""Each row of the table of serving fields, each rule of reading, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from sembridge.errors import BadInput
from sembridge.serving import openai
from sembridge.serving.fields import Effect
from sembridge.serving.surface import EVERY, decide, join, label, serve
from tests.serving.bodies import CHAT, COMPLETION, PARAMS, RESPONSE, SAY, STARTS, TOOL, Start

TOKENS, OTHER, COMPLETE, LOGPROBS = "tokens", "other-projection", "complete", "logprobs"

AWAY: list[tuple[Start, str, dict[str, Any], str]] = [
    # temperature and what samples with it
    *((start, "temperature", {"temperature": 0.005}, COMPLETE) for start in STARTS),
    (PARAMS, "temperature", {"temperature": 1, "top_k": 1}, COMPLETE),
    (CHAT, "temperature", {"temperature": None, "top_p": 0.5, "seed": 3}, COMPLETE),
    # several sequences
    *((start, "n", {"n": 2}, COMPLETE) for start in (PARAMS, CHAT, COMPLETION)),
    (COMPLETION, "best_of", {"best_of": 2}, COMPLETE),
    (CHAT, "best_of", {"best_of": 2}, COMPLETE),
    (PARAMS, "best_of", {"best_of": 2}, COMPLETE),
    *((start, "use_beam_search", {"use_beam_search": True}, COMPLETE) for start in STARTS[:3]),
    *((start, "length_penalty", {"length_penalty": 0.8}, COMPLETE) for start in STARTS[:3]),
    *((start, "early_stopping", {"early_stopping": True}, COMPLETE) for start in STARTS[:3]),
    # log-probabilities
    (PARAMS, "logprobs", {"logprobs": 0}, LOGPROBS),
    (PARAMS, "logprobs", {"logprobs": -1}, LOGPROBS),
    (COMPLETION, "logprobs", {"logprobs": 0}, LOGPROBS),
    (CHAT, "logprobs", {"logprobs": True}, LOGPROBS),
    (CHAT, "top_logprobs", {"top_logprobs": 0}, LOGPROBS),
    (RESPONSE, "top_logprobs", {"top_logprobs": 0}, LOGPROBS),
    (RESPONSE, "include", {"include": ["message.output_text.logprobs"]}, LOGPROBS),
    *((start, "prompt_logprobs", {"prompt_logprobs": 0}, LOGPROBS) for start in STARTS[:3]),
    (PARAMS, "prompt_logprob_token_ids", {"prompt_logprob_token_ids": [[1]]}, LOGPROBS),
    (
        PARAMS,
        "prompt_logprob_start",
        {"prompt_logprob_token_ids": [[1]], "prompt_logprob_start": 0},
        LOGPROBS,
    ),
    (PARAMS, "logprob_token_ids", {"logprob_token_ids": [1, 2]}, LOGPROBS),
    (CHAT, "logprob_token_ids", {"logprobs": True, "logprob_token_ids": [1]}, LOGPROBS),
    (COMPLETION, "logprob_token_ids", {"logprobs": 1, "logprob_token_ids": [1]}, LOGPROBS),
    (CHAT, "echo", {"echo": True}, LOGPROBS),
    # stateless modifiers
    *((start, "logit_bias", {"logit_bias": {"7": -100}}, OTHER) for start in STARTS),
    *((start, "allowed_token_ids", {"allowed_token_ids": [7]}, OTHER) for start in STARTS[:3]),
    # history
    *((start, "min_tokens", {"min_tokens": 1}, OTHER) for start in STARTS[:3]),
    *((start, "presence_penalty", {"presence_penalty": -0.1}, OTHER) for start in STARTS),
    *((start, "frequency_penalty", {"frequency_penalty": 1}, OTHER) for start in STARTS),
    *((start, "repetition_penalty", {"repetition_penalty": 1.05}, OTHER) for start in STARTS),
    *((start, "bad_words", {"bad_words": ["a"]}, OTHER) for start in STARTS[:3]),
    (PARAMS, "_bad_words_token_ids", {"_bad_words_token_ids": [[1]]}, OTHER),
    # grammars
    *((s, "structured_outputs", {"structured_outputs": {"regex": "a"}}, OTHER) for s in STARTS),
    (CHAT, "response_format", {"response_format": {"type": "json_object"}}, OTHER),
    (COMPLETION, "response_format", {"response_format": {"type": "json_object"}}, OTHER),
    (RESPONSE, "text", {"text": {"format": {"type": "json_object"}}}, OTHER),
    (CHAT, "tool_choice", {"tools": [TOOL], "tool_choice": "required"}, OTHER),
    (CHAT, "tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function"}}, OTHER),
    (RESPONSE, "tool_choice", {"tools": [TOOL], "tool_choice": {"type": "mcp"}}, OTHER),
    (CHAT, "function_call", {"functions": [{}], "function_call": {"name": "f"}}, OTHER),
    (CHAT, "tools", {"tools": [{"function": {"name": "f", "strict": True}}]}, OTHER),
    (RESPONSE, "tools", {"tools": [{"type": "function", "strict": True}]}, OTHER),
    (RESPONSE, "tools", {"tools": [{"format": {"type": "grammar"}}]}, OTHER),
    (RESPONSE, "tools", {"tools": [{"type": "namespace", "tools": [{"strict": True}]}]}, OTHER),
    # thinking
    *((s, "thinking_token_budget", {"thinking_token_budget": 0}, OTHER) for s in STARTS[:3]),
    (CHAT, "reasoning_effort", {"reasoning_effort": "low"}, OTHER),
    (RESPONSE, "reasoning", {"reasoning": {"effort": "high"}}, OTHER),
    (RESPONSE, "reasoning", {"reasoning": {"mode": "pro"}}, COMPLETE),
    # what a plug-in may read, and what replaces the argmax
    (PARAMS, "extra_args", {"extra_args": {"a": 1}}, COMPLETE),
    *((start, "vllm_xargs", {"vllm_xargs": {"a": 1}}, COMPLETE) for start in STARTS[1:]),
    *((start, "logits_processors", {"logits_processors": ["a"]}, COMPLETE) for start in STARTS),
    *((start, "watermarking", {"watermarking": True}, COMPLETE) for start in STARTS),
    (PARAMS, "trace_decode_token_ids", {"trace_decode_token_ids": [1]}, COMPLETE),
    (RESPONSE, "prompt", {"prompt": {"id": "p"}}, COMPLETE),
    # token blocks
    (CHAT, "prediction", {"prediction": {"type": "content", "content": "a"}}, OTHER),
    # removed fields
    *((start, "guided_json", {"guided_json": {}}, COMPLETE) for start in STARTS),
    *((start, "guided_regex", {"guided_regex": "a"}, COMPLETE) for start in STARTS),
    *((start, "guided_choice", {"guided_choice": ["a"]}, COMPLETE) for start in STARTS),
    *((start, "guided_grammar", {"guided_grammar": "a"}, COMPLETE) for start in STARTS),
    *(
        (start, f"guided_{name}", {f"guided_{name}": value}, COMPLETE)
        for start in STARTS
        for name, value in (
            ("decoding_backend", "auto"),
            ("whitespace_pattern", "a"),
            ("json_object", True),
        )
    ),
    (PARAMS, "guided_decoding", {"guided_decoding": {}}, COMPLETE),
    (PARAMS, "truncate_prompt_tokens", {"truncate_prompt_tokens": 5}, COMPLETE),
    (PARAMS, "_real_n", {"_real_n": 2}, COMPLETE),
]
FURTHER: list[tuple[Start, str, dict[str, Any]]] = [
    *((s, "kv_transfer_params", {"kv_transfer_params": {"a": 1}}) for s in STARTS[1:]),
    *((s, "ec_transfer_params", {"ec_transfer_params": {"a": 1}}) for s in STARTS[1:]),
    *((s, "routed_experts_prompt_start", {"routed_experts_prompt_start": 4}) for s in STARTS[:3]),
    (CHAT, "audio", {"audio": {"voice": "a"}}),
    (CHAT, "modalities", {"modalities": ["text", "audio"], "audio": {"voice": "a"}}),
]
NEUTRAL: list[tuple[Start, dict[str, Any]]] = [
    (PARAMS, {"top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7}),
    (PARAMS, {"stop": ["a"], "stop_token_ids": [1], "ignore_eos": True, "max_tokens": 5}),
    (PARAMS, {"detokenize": False, "output_kind": 2, "skip_special_tokens": False}),
    (PARAMS, {"best_of": 1, "use_beam_search": False, "guided_decoding": None}),
    (PARAMS, {"logits_processors": [], "early_stopping": False, "length_penalty": 1}),
    (PARAMS, {"presence_penalty": 0, "repetition_penalty": 1, "bad_words": [], "min_tokens": 0}),
    (PARAMS, {"extra_args": {}, "logit_bias": {}, "thinking_token_budget": -1}),
    (PARAMS, {"repetition_detection": {"max_pattern_size": 4, "min_count": 3}}),
    (CHAT, {"logprobs": False, "response_format": {"type": "text"}, "modalities": ["text"]}),
    (CHAT, {"tools": [TOOL], "tool_choice": "auto"}),
    (CHAT, {"tools": [TOOL], "tool_choice": "none", "parallel_tool_calls": True}),
    (CHAT, {"stream": True, "stream_options": {"include_usage": True}, "user": "u"}),
    (CHAT, {"metadata": {"a": "b"}, "priority": 3, "cache_salt": "s", "store": True}),
    (CHAT, {"return_token_ids": True, "chat_template_kwargs": {"thinking_token_budget": 1}}),
    (COMPLETION, {"echo": True, "suffix": "s", "best_of": 1, "max_tokens": 0}),
    (COMPLETION, {"prompt": [[1, 2], [3]]}),
    (RESPONSE, {"reasoning": {"summary": "auto"}, "text": {"verbosity": "low"}}),
    (RESPONSE, {"include": ["reasoning.encrypted_content"], "truncation": "auto"}),
]
REFUSED: list[tuple[Start, dict[str, Any], str]] = [
    (PARAMS, {"temperature": "0"}, "temperature"),
    (PARAMS, {"temperature": False}, "temperature"),
    (PARAMS, {"temperature": -0.1}, "temperature"),
    (PARAMS, {"temperature": 2.1}, "temperature"),
    (PARAMS, {"top_k": 1.0}, "top_k"),
    (PARAMS, {"top_k": -2}, "top_k"),
    (PARAMS, {"top_p": 0}, "top_p"),
    (PARAMS, {"top_p": 1.1}, "top_p"),
    (PARAMS, {"min_p": -0.1}, "min_p"),
    (PARAMS, {"n": 0}, "n"),
    (PARAMS, {"seed": 1.5}, "seed"),
    (PARAMS, {"logprobs": True}, "logprobs"),
    (PARAMS, {"logprobs": -2}, "logprobs"),
    (PARAMS, {"repetition_penalty": 0}, "repetition_penalty"),
    (PARAMS, {"presence_penalty": 2.5}, "presence_penalty"),
    (PARAMS, {"max_tokens": 0}, "max_tokens"),
    (PARAMS, {"stop": ["a", ""]}, "stop[1]"),
    (PARAMS, {"stop": 5}, "stop"),
    (PARAMS, {"bad_words": "a"}, "bad_words"),
    (PARAMS, {"allowed_token_ids": []}, "allowed_token_ids"),
    (PARAMS, {"logit_bias": {"a": 1}}, "logit_bias.a"),
    (PARAMS, {"logit_bias": {"-1": 1}}, 'logit_bias["-1"]'),
    (PARAMS, {"logit_bias": {"7": 101}}, 'logit_bias["7"]'),
    (PARAMS, {"thinking_token_budget": 5.0}, "thinking_token_budget"),
    (PARAMS, {"output_kind": True}, "output_kind"),
    (PARAMS, {"structured_outputs": {}}, "structured_outputs"),
    (PARAMS, {"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    (PARAMS, {"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
    (PARAMS, {"repetition_detection": {"max_pattern_size": 3}}, "repetition_detection"),
    (PARAMS, {"repetition_detection": {"min_pattern_size": 3}}, "repetition_detection"),
    (PARAMS, {"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    (PARAMS, {"stop": ["a"], "detokenize": False}, "stop"),
    (PARAMS, {"prompt_logprob_start": 0}, "prompt_logprob_start"),
    (PARAMS, {"logprob_token_ids": [1, 2], "logprobs": 1}, "logprob_token_ids"),
    (PARAMS, {"n": 2, "best_of": 1}, "best_of"),
    (CHAT, {"logprobs": 5}, "logprobs"),
    (CHAT, {"logprobs": 0}, "logprobs"),
    (CHAT, {"top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"logprobs": False, "top_logprobs": -1}, "top_logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": True}, "top_logprobs"),
    (CHAT, {"logprob_token_ids": [1]}, "logprob_token_ids"),
    (CHAT, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
    (CHAT, {"tools": []}, "tools"),
    (CHAT, {"tool_choice": "auto"}, "tool_choice"),
    (CHAT, {"tool_choice": "any", "tools": [TOOL]}, "tool_choice"),
    (CHAT, {"function_call": "auto"}, "function_call"),
    (CHAT, {"response_format": {}}, "response_format.type"),
    (CHAT, {"response_format": {"type": "regex"}}, "response_format.type"),
    (CHAT, {"response_format": {"type": "json_schema"}}, "response_format"),
    (
        CHAT,
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
    ),
    (CHAT, {"modalities": ["audio"]}, "modalities"),
    (CHAT, {"messages": "hello"}, "messages"),
    (CHAT, {"messages": ["hello"]}, "messages[0]"),
    (CHAT, {"reasoning_effort": "extreme"}, "reasoning_effort"),
    (COMPLETION, {"logprobs": False}, "logprobs"),
    (COMPLETION, {"logprob_token_ids": [1]}, "logprob_token_ids"),
    (COMPLETION, {"n": 3, "best_of": 2}, "best_of"),
    (COMPLETION, {"best_of": 2, "stream": True}, "best_of"),
    (COMPLETION, {"prompt": {"id": 1}, "input": 5}, "input"),
    (RESPONSE, {"background": True, "store": False}, "background"),
    (RESPONSE, {"conversation": "a", "previous_response_id": "b"}, "conversation"),
    (
        RESPONSE,
        {"structured_outputs": {"regex": "a"}, "text": {"format": {"type": "text"}}},
        "structured_outputs",
    ),
]


@pytest.mark.parametrize("start", STARTS, ids=repr)
def test_greedy_alone_is_token_only(start: Start) -> None:
    decision = decide(start.greedy, api=start.api)
    assert (decision.surface, decision.paper_surface) == (TOKENS, TOKENS)
    assert decision.decided_by == ("temperature",)
    assert decision.warnings == ()


CHEAP = {"logit_bias": "chosen_tokens", "allowed_token_ids": "chosen_tokens"}
"""What the kit registers beyond the paper, by the field that asks for it."""


def kit_surface(field: str, change: dict[str, Any], expected: str) -> str:
    """The kit's answer for one row; bounded counts of log-probabilities are registered."""
    if expected != LOGPROBS:
        return CHEAP.get(field, COMPLETE)
    asked = change.get("top_logprobs", change.get("logprobs", -1))
    bounded = asked >= 0 and not {"prompt_logprobs", "logprob_token_ids"} & change.keys()
    return f"top_logprobs({0 if asked is True else asked})" if bounded else LOGPROBS


@pytest.mark.parametrize(("start", "field", "change", "expected"), AWAY)
def test_a_field_away_from_neutral(
    start: Start, field: str, change: dict[str, Any], expected: str
) -> None:
    decision = decide(start.but(**change), api=start.api)
    assert decision.paper_surface == expected
    assert decision.surface == kit_surface(field, change, expected)
    assert field in decision.decided_by
    assert set(decision.decided_by) <= set(change)


def test_every_field_that_is_not_neutral_has_a_row() -> None:
    shown = {(start.schema.name, field) for start, field, *_ in [*AWAY, *FURTHER]}
    decisive = {
        (start.schema.name, name)
        for start in STARTS
        for name, field in start.schema.fields.items()
        if (field.effect or field.judge) and not field.companion
    }
    assert decisive <= shown


@pytest.mark.parametrize(("start", "field", "change"), FURTHER)
def test_a_further_surface_leaves_the_token_alone(
    start: Start, field: str, change: dict[str, Any]
) -> None:
    decision = decide(start.but(**change), api=start.api)
    assert decision.paper_surface == TOKENS
    assert any(field in warning and "further surface" in warning for warning in decision.warnings)


@pytest.mark.parametrize(("start", "change"), NEUTRAL)
def test_neutral_fields_stay_token_only(start: Start, change: dict[str, Any]) -> None:
    decision = decide(start.but(**change), api=start.api)
    assert (decision.paper_surface, decision.warnings) == (TOKENS, ())


@pytest.mark.parametrize(("start", "change", "path"), REFUSED)
def test_bad_input_names_the_field(start: Start, change: dict[str, Any], path: str) -> None:
    with pytest.raises(BadInput) as caught:
        decide(start.but(**change), api=start.api)
    assert caught.value.path == f"$.{path}"


def test_every_clash_has_a_refused_row() -> None:
    messages: set[tuple[str, str]] = set()
    for start, change, _ in REFUSED:
        with pytest.raises(BadInput) as caught:
            decide(start.but(**change), api=start.api)
        messages.add((caught.value.path, caught.value.message))
    clashes = [clash for start in STARTS for clash in start.schema.clashes]
    assert {(f"$.{clash.field}", clash.message) for clash in clashes} <= messages


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({"logprobs_mode": "processed_logprobs"}, COMPLETE),
        ({"logprobs_mode": "raw_logprobs"}, TOKENS),
        ({"return_sampling_mask": True}, COMPLETE),
        ({"compute_nans": True}, COMPLETE),
        ({"return_logits": True}, COMPLETE),
        ({"logits_processors": ["plug.in"]}, COMPLETE),
        ({"speculative_config": {"method": "ngram"}}, OTHER),
        ({"speculative": "ngram", "num_speculative_tokens": 5}, OTHER),
        ({"num_speculative_tokens": 0}, TOKENS),
        ({"enable_return_routed_experts": True}, TOKENS),
        ({"return_hidden_states": True}, TOKENS),
        ({"kv_transfer_config": {"a": 1}}, TOKENS),
        ({"pooler_config": {"a": 1}}, TOKENS),
        ({"never_heard_of": 0}, COMPLETE),
    ],
)
def test_engine_options(engine: dict[str, Any], expected: str) -> None:
    assert decide(PARAMS.greedy, api="vllm", engine=engine).paper_surface == expected


def test_a_speculated_block_is_not_a_token() -> None:
    decision = decide(PARAMS.greedy, api="vllm", engine={"speculative_config": {"method": "eagle"}})
    assert decision.need.token is Effect.BLOCK
    assert decision.surface == COMPLETE


@pytest.mark.parametrize("start", STARTS, ids=repr)
def test_the_generation_config_stands_in_for_what_is_left_out(start: Start) -> None:
    unset = start.but(temperature=None)
    assert decide(unset, api=start.api).decided_by == ("temperature",)
    assert decide(unset, api=start.api, defaults={"temperature": 0}).paper_surface == TOKENS
    assert decide(unset, api=start.api, defaults={"temperature": 0.6}).paper_surface == COMPLETE
    penal = decide(start.greedy, api=start.api, defaults={"repetition_penalty": 1.05})
    assert penal.paper_surface == OTHER
    assert penal.decided_by == ("repetition_penalty",)
    assert penal.warnings == ("$.repetition_penalty: 1.05 comes from the generation config",)
    sent = start.but(repetition_penalty=1.0)
    assert decide(sent, api=start.api, defaults={"repetition_penalty": 1.05}).warnings == ()


def test_the_generation_config_keys_that_engines_skip_decide_nothing() -> None:
    skipped = {"do_sample": True, "no_repeat_ngram_size": 3, "transformers_version": "4.57.1"}
    assert decide(PARAMS.greedy, api="vllm", defaults=skipped).paper_surface == TOKENS


def test_a_malformed_generation_config_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"\$defaults\.top_k: must be an integer"):
        decide(PARAMS.greedy, api="vllm", defaults={"top_k": 50.0})


def test_log_probabilities_win() -> None:
    asked = CHAT.but(
        logprobs=True, top_logprobs=None, temperature=0.7, n=2, guided_json={}, min_tokens=3
    )
    decision = decide(asked, api="openai")
    assert (decision.paper_surface, decision.decided_by) == (LOGPROBS, ("logprobs",))


@pytest.mark.parametrize(
    ("start", "change", "count", "prompt"),
    [
        (CHAT, {"logprobs": True}, 0, False),
        (CHAT, {"logprobs": True, "top_logprobs": 5}, 5, False),
        (CHAT, {"echo": True}, 0, True),
        (COMPLETION, {"logprobs": 3, "echo": True}, 3, True),
        (COMPLETION, {"logprobs": 3}, 3, False),
        (PARAMS, {"logprobs": 2, "prompt_logprobs": 4}, 4, True),
        (PARAMS, {"logprobs": -1}, EVERY, False),
        (PARAMS, {"logprob_token_ids": [5]}, EVERY, False),
    ],
)
def test_how_many_log_probabilities(
    start: Start, change: dict[str, Any], count: int, prompt: bool
) -> None:
    need = decide(start.but(**change), api=start.api).need
    assert (need.logprobs, need.prompt) == (count, prompt)


KEYED = {"keyed_sampling": True}


@pytest.mark.parametrize(
    ("change", "engine", "surface", "paper"),
    [
        ({"logprobs": 5}, {}, "top_logprobs(5)", LOGPROBS),
        ({"logprobs": 5}, {"logprobs_mode": "raw_logprobs"}, "top_logprobs(5)", LOGPROBS),
        ({"logprobs": 5}, {"logprobs_mode": "raw_logits"}, LOGPROBS, LOGPROBS),
        ({"logprobs": 5}, {"logprobs_mode": "processed_logprobs"}, LOGPROBS, LOGPROBS),
        ({"logprobs": 5}, {"speculative": "ngram"}, LOGPROBS, LOGPROBS),
        ({"logprobs": 1025}, {}, LOGPROBS, LOGPROBS),
        ({"logprobs": 5, "n": 2}, {}, LOGPROBS, LOGPROBS),
        ({"logprobs": 5, "min_tokens": 2}, {}, LOGPROBS, LOGPROBS),
        ({"logprobs": 5, "logit_bias": {"5": 1}}, {}, "top_logprobs(5)", LOGPROBS),
        ({"logprobs": 5, "temperature": 1, "seed": 3}, {}, LOGPROBS, LOGPROBS),
        ({"logprobs": 5, "temperature": 1, "seed": 3}, KEYED, "top_logprobs(5)", LOGPROBS),
        ({"logit_bias": {"5": 1}, "min_tokens": 2}, {}, COMPLETE, OTHER),
        ({"temperature": 1, "seed": 3}, {}, COMPLETE, COMPLETE),
        ({"temperature": 1, "seed": 3}, KEYED, "chosen_tokens", COMPLETE),
        ({"temperature": 1, "seed": 3, "logit_bias": {"5": 1}}, KEYED, "chosen_tokens", COMPLETE),
        ({"temperature": 1}, KEYED, COMPLETE, COMPLETE),
        ({"temperature": 1, "seed": 3, "min_p": 0.1}, KEYED, COMPLETE, COMPLETE),
        ({"temperature": 1, "seed": 3, "presence_penalty": 1}, KEYED, COMPLETE, COMPLETE),
        ({"temperature": 1, "seed": 3, "watermarking": True}, KEYED, COMPLETE, COMPLETE),
        ({"seed": 3}, KEYED, TOKENS, TOKENS),
    ],
)
def test_what_crosses_cheaply_and_what_does_not(
    change: dict[str, Any], engine: dict[str, Any], surface: str, paper: str
) -> None:
    decision = decide(PARAMS.but(**change), api="vllm", engine=engine)
    assert (decision.surface, decision.paper_surface) == (surface, paper)


def test_one_unkeyed_request_keeps_the_batch_complete() -> None:
    drawn = PARAMS.but(temperature=1, seed=3)
    needs = [decide(b, api="vllm", engine=KEYED).need for b in (drawn, PARAMS.but(temperature=1))]
    assert [label(serve(need)) for need in needs] == ["chosen_tokens", COMPLETE]
    joined = join(needs)
    assert joined is not None
    assert label(serve(joined)) == COMPLETE


def test_the_endpoint_is_told_by_its_prompt() -> None:
    assert openai.endpoint({"messages": SAY, "prompt": "a"}) is openai.CHAT
    assert openai.endpoint({"messages": None, "prompt": "a"}) is openai.COMPLETIONS
    assert openai.endpoint({"prompt_embeds": "a"}) is openai.COMPLETIONS
    assert openai.endpoint({"prompt": {"id": "p"}}) is openai.RESPONSES
    assert openai.endpoint({"previous_response_id": "r"}) is openai.RESPONSES
    with pytest.raises(BadInput, match="none of messages, prompt and input"):
        openai.endpoint({"temperature": 0})


def test_an_unknown_key_of_a_record_is_unknown() -> None:
    decision = decide(RESPONSE.but(reasoning={"budget": 5}), api="openai")
    assert decision.paper_surface == COMPLETE
    assert decision.decided_by == ("reasoning",)
    assert decision.warnings == ("$.reasoning.budget: unknown field, so complete logits",)
