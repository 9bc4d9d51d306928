"""vLLM's request types: ``SamplingParams``, what its server adds to OpenAI's, engine options.

Read off vLLM ``VERSION``; tests hold the tables against the recorded field list of that version,
and against the installed package where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sembridge.serving.fields import (
    Anything,
    Choice,
    Clash,
    Effect,
    Either,
    Field,
    Flag,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Number,
    Record,
    Schema,
    Text,
    plain,
    table,
)

VERSION = "0.33.0"

ANY, FLAG, TEXT, COUNT, POSITIVE = Anything(), Flag(), Text(), Integer(0), Integer(1)
WORDS, IDS, OBJECT = ListOf(Text(1)), ListOf(COUNT), MapOf()
STOP = Either((Text(1), WORDS))

SAMPLED = "sampling needs generator state, which the contract does not carry"
GRAMMAR = "a grammar masks the logits of each step at the producer"
HISTORY = "depends on the tokens so far, which the producer keeps"
RETURNED = "log-probabilities are returned, so complete logits are observed"
PROMPT = "log-probabilities of prompt positions are returned, so complete logits are observed"

SAMPLING_CORE = (
    Field(
        name="temperature",
        kind=Number(0, 2),
        effect=Effect.RNG,
        neutral=(0,),
        note=f"temperature is not exactly 0 (a tiny one is clamped up): {SAMPLED}",
    ),
    *(
        Field(name=name, kind=kind, effect=Effect.RNG, companion=True, note=SAMPLED)
        for name, kind in (
            ("top_p", Number(0, 1, above=True)),
            ("top_k", Integer(-1)),
            ("min_p", Number(0, 1)),
            ("seed", Integer()),
        )
    ),
    *(
        Field(name=name, kind=kind, effect=Effect.PROJECTION, neutral=(off,), note=HISTORY)
        for name, kind, off in (
            ("presence_penalty", Number(-2, 2), 0),
            ("frequency_penalty", Number(-2, 2), 0),
            ("repetition_penalty", Number(0, above=True), 1),
        )
    ),
    Field(
        name="watermarking",
        kind=FLAG,
        effect=Effect.FULL,
        neutral=(False,),
        note="the engine's watermark changes which token is drawn",
    ),
    Field(name="stop", kind=STOP),
)
"""Decoding fields that every generating endpoint of vLLM takes."""

SEQUENCES = Field(
    name="n",
    kind=POSITIVE,
    effect=Effect.FULL,
    neutral=(1,),
    note="several sequences of one prompt",
)
TOKEN_ID_FIELDS = (
    *plain(IDS, "stop_token_ids"),
    *plain(FLAG, "ignore_eos", "include_stop_str_in_output"),
    *plain(FLAG, "skip_special_tokens", "spaces_between_special_tokens"),
)
MIN_TOKENS = Field(
    name="min_tokens",
    kind=COUNT,
    effect=Effect.PROJECTION,
    neutral=(0,),
    note="a counter masks the stop set at the producer",
)
LOGIT_BIAS = Field(
    name="logit_bias",
    kind=MapOf(Number(-100, 100), ids=True),
    effect=Effect.MODIFIER,
    neutral=({},),
    note="biases are added to the logits before argmax",
)
MASKS = (
    Field(
        name="allowed_token_ids",
        kind=ListOf(COUNT, 1),
        effect=Effect.MODIFIER,
        note="argmax over a subset of the vocabulary",
    ),
    Field(name="bad_words", kind=WORDS, effect=Effect.PROJECTION, neutral=([],), note=HISTORY),
)
THINKING = Field(
    name="thinking_token_budget",
    kind=Integer(-1),
    effect=Effect.PROJECTION,
    neutral=(-1,),
    note="a counter forces the end of thinking at the producer",
)
STRUCTURED = Field(
    name="structured_outputs",
    kind=Record(
        table(
            *(
                Field(name=name, kind=kind, effect=Effect.PROJECTION, note=GRAMMAR)
                for name, kind in (
                    ("json", Either((TEXT, OBJECT))),
                    ("regex", TEXT),
                    ("choice", ListOf(TEXT)),
                    ("grammar", TEXT),
                    ("json_object", FLAG),
                    ("structural_tag", TEXT),
                )
            ),
            plain(FLAG, "disable_any_whitespace", "disable_additional_properties"),
            plain(FLAG, "_backend_was_auto"),
            plain(TEXT, "whitespace_pattern", "_backend"),
        )
    ),
)
CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
REPETITION = Field(
    name="repetition_detection",
    kind=Record(table(plain(COUNT, "max_pattern_size", "min_pattern_size", "min_count"))),
)
PROMPT_LOGPROBS = Field(
    name="prompt_logprobs", kind=Integer(-1), effect=Effect.LOGPROBS, note=PROMPT
)
LOGPROB_IDS = Field(
    name="logprob_token_ids",
    kind=IDS,
    effect=Effect.LOGPROBS,
    neutral=([],),
    note="log-probabilities of given ids need the normaliser over the whole vocabulary",
)


def _further(name: str, kind: Kind, neutral: object, what: str) -> Field:
    return Field(
        name=name,
        kind=kind,
        effect=Effect.FURTHER,
        neutral=(neutral,),
        warning=f"{what} a further surface beside this one",
    )


def _speculative(name: str, kind: Kind, neutral: object) -> Field:
    return Field(
        name=name,
        kind=kind,
        effect=Effect.BLOCK,
        neutral=(neutral,),
        note="speculative decoding delivers a block of tokens with accepted counts",
    )


ROUTED = _further("routed_experts_prompt_start", COUNT, 0, "routed experts are")
TRANSFERS = tuple(
    _further(name, OBJECT, {}, "a transfer of caches is")
    for name in ("kv_transfer_params", "ec_transfer_params")
)


def unknown_arguments(name: str) -> Field:
    """A field of free arguments, which a plug-in logits processor may read."""
    return Field(
        name=name,
        kind=OBJECT,
        effect=Effect.FULL,
        neutral=({},),
        note="arguments of this kind may drive a plug-in logits processor",
    )


def removed(name: str, kind: Kind = ANY, *neutral: object) -> Field:
    """A field that vLLM ``VERSION`` no longer has; only its old neutral values are neutral."""
    return Field(
        name=name,
        kind=kind,
        effect=Effect.FULL,
        neutral=neutral,
        note="a removed field at a value that is not neutral",
        warning=f"not a field of vLLM {VERSION}, so complete logits",
    )


GUIDED = (
    *(
        removed(f"guided_{name}")
        for name in ("json", "regex", "choice", "grammar", "decoding_backend", "whitespace_pattern")
    ),
    removed("guided_json_object", FLAG, False),
    removed("logits_processors", ListOf(ANY), []),
)
BEAM = (
    Field(
        name="use_beam_search",
        kind=FLAG,
        effect=Effect.FULL,
        neutral=(False,),
        note="beams compare log-probabilities",
    ),
    Field(
        name="length_penalty",
        kind=Number(),
        effect=Effect.FULL,
        neutral=(1,),
        note="beams compare log-probabilities",
    ),
)
EARLY_STOPPING = removed("early_stopping", Either((FLAG, Choice(("never",)))), False)
BEST_OF = "the best of several sequences is chosen by log-probability"


CONSTRAINED = Clash(
    field="structured_outputs",
    message=f"needs exactly one of {', '.join(CONSTRAINTS)}",
    when=lambda request: (
        sum(request["structured_outputs"].get(name) is not None for name in CONSTRAINTS) != 1
    ),
)


def exceeds(low: str, high: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a request that sends either sets ``low`` above ``high``."""
    return lambda request: low in request and high in request and request[low] > request[high]


MIN_ABOVE_MAX = Clash(
    field="min_tokens",
    message="must not be above max_tokens",
    when=exceeds("min_tokens", "max_tokens"),
)

REPEATS = (
    Clash(
        field="repetition_detection",
        message="min_pattern_size must not be above max_pattern_size",
        when=lambda request: (
            _repeats(request, "min_pattern_size") > _repeats(request, "max_pattern_size")
        ),
    ),
    Clash(
        field="repetition_detection",
        message="min_count must be at least 2 where a pattern is looked for",
        when=lambda request: (
            _repeats(request, "max_pattern_size") > 0 and _repeats(request, "min_count") < 2
        ),
    ),
)


def _repeats(request: Mapping[str, Any], name: str) -> int:
    return request["repetition_detection"].get(name) or 0


SAMPLING = Schema(
    name="vLLM SamplingParams",
    fields=table(
        SAMPLING_CORE,
        SEQUENCES,
        TOKEN_ID_FIELDS,
        MIN_TOKENS,
        LOGIT_BIAS,
        MASKS,
        THINKING,
        STRUCTURED,
        REPETITION,
        Field(name="logprobs", kind=Integer(-1), effect=Effect.LOGPROBS, note=RETURNED),
        PROMPT_LOGPROBS,
        Field(
            name="prompt_logprob_token_ids",
            kind=ListOf(ListOf(Integer(-1)), 1),
            effect=Effect.LOGPROBS,
            note=PROMPT,
        ),
        Field(name="prompt_logprob_start", kind=COUNT, effect=Effect.LOGPROBS, note=PROMPT),
        LOGPROB_IDS,
        ROUTED,
        unknown_arguments("extra_args"),
        Field(
            name="trace_decode_token_ids",
            kind=ListOf(COUNT, 1),
            effect=Effect.FULL,
            note="the engine emits a given sequence in place of the argmax",
        ),
        Field(
            name="_bad_words_token_ids",
            kind=ListOf(IDS),
            effect=Effect.PROJECTION,
            neutral=([],),
            note=HISTORY,
        ),
        plain(POSITIVE, "max_tokens", "stream_interval"),
        plain(FLAG, "detokenize", "flat_logprobs", "skip_clone", "skip_reading_prefix_cache"),
        plain(FLAG, "_watermarking_skipped"),
        plain(Choice((0, 1, 2, "CUMULATIVE", "DELTA", "FINAL_ONLY")), "output_kind"),
        plain(COUNT, "output_text_buffer_length", "_eos_token_id"),
        plain(IDS, "_all_stop_token_ids"),
        GUIDED,
        removed("guided_decoding"),
        removed("use_beam_search", FLAG, False),
        removed("length_penalty", Number(), 1),
        EARLY_STOPPING,
        removed("best_of", POSITIVE, 1),
        removed("truncate_prompt_tokens", Integer(-1)),
        removed("_real_n", POSITIVE, 1),
    ),
    clashes=(
        MIN_ABOVE_MAX,
        *REPEATS,
        CONSTRAINED,
        Clash(
            field="stop",
            message="needs detokenize: true",
            when=lambda request: bool(request["stop"]) and request.get("detokenize") is False,
        ),
        Clash(
            field="prompt_logprob_start",
            message="needs prompt_logprob_token_ids",
            when=lambda request: "prompt_logprob_token_ids" not in request,
        ),
        Clash(
            field="logprob_token_ids",
            message="logprobs must be the count of these ids",
            when=lambda request: (
                bool(request["logprob_token_ids"])
                and request.get("logprobs", len(request["logprob_token_ids"]))
                != len(request["logprob_token_ids"])
            ),
        ),
        Clash(
            field="best_of",
            message="must not be below n",
            when=exceeds("n", "best_of"),
        ),
    ),
)


SERVED_RESPONSES = (
    LOGIT_BIAS,
    STRUCTURED,
    *TOKEN_ID_FIELDS,
    *TRANSFERS,
    unknown_arguments("vllm_xargs"),
    *plain(FLAG, "include_reasoning", "enable_response_messages", "return_mm_kwargs"),
    *plain(OBJECT, "media_io_kwargs", "mm_processor_kwargs", "chat_template_kwargs"),
    *plain(Integer(), "priority"),
    *plain(TEXT, "request_id", "session_id", "cache_salt", "mm_payload"),
    *plain(ListOf(OBJECT), "previous_input_messages"),
    *GUIDED,
)
"""What vLLM's server adds to OpenAI's responses, besides ``SAMPLING_CORE``."""

SERVED = (
    *plain(FLAG, "return_mm_kwargs"),
    *plain(TEXT, "mm_payload"),
    *plain(Integer(), "priority"),
    *plain(TEXT, "request_id", "session_id", "cache_salt"),
    *TRANSFERS,
    unknown_arguments("vllm_xargs"),
    *BEAM,
    *TOKEN_ID_FIELDS,
    MIN_TOKENS,
    *MASKS,
    THINKING,
    STRUCTURED,
    REPETITION,
    PROMPT_LOGPROBS,
    LOGPROB_IDS,
    ROUTED,
    *plain(POSITIVE, "stream_interval"),
    *plain(Integer(-1), "truncate_prompt_tokens"),
    *plain(Choice(("left", "right")), "truncation_side"),
    *plain(FLAG, "add_special_tokens", "return_tokens_as_token_ids", "return_token_ids"),
    *plain(FLAG, "return_weight_versions", "return_token_offsets"),
    *GUIDED,
    EARLY_STOPPING,
)
"""What vLLM's server adds to both of OpenAI's completion endpoints, besides ``SAMPLING_CORE``."""

SERVED_CHAT = (
    *plain(FLAG, "include_reasoning", "add_generation_prompt", "continue_final_message"),
    *plain(FLAG, "return_prompt_text"),
    *plain(ListOf(OBJECT), "documents"),
    *plain(TEXT, "chat_template"),
    *plain(OBJECT, "chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs"),
    Field(
        name="echo",
        kind=FLAG,
        effect=Effect.LOGPROBS,
        neutral=(False,),
        note="vLLM returns prompt log-probabilities of an echoed chat, top_logprobs being 0 unset",
    ),
)
SERVED_COMPLETIONS = plain(Either((TEXT, ListOf(TEXT))), "prompt_embeds")

DEFAULTS = table(
    *(field for field in SAMPLING_CORE if field.name not in ("seed", "watermarking", "stop")),
)
"""What vLLM takes from a generation config where the request leaves it out."""

ENGINE = table(
    Field(
        name="logprobs_mode",
        kind=Choice(("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")),
        effect=Effect.FULL,
        neutral=("raw_logprobs", "raw_logits"),
        note="log-probabilities of post-processed logits",
    ),
    *(
        Field(name=name, kind=FLAG, effect=Effect.FULL, neutral=(False,), note=note)
        for name, note in (
            ("return_sampling_mask", "the sampling mask is read off complete logits"),
            ("compute_nans", "NaNs are counted in complete logits"),
            ("return_logits", "logits are returned"),
        )
    ),
    Field(
        name="logits_processors",
        kind=ListOf(ANY),
        effect=Effect.FULL,
        neutral=([],),
        note="plug-in logits processors are unknown",
    ),
    Field(name="keyed_sampling", kind=FLAG),
    _speculative("speculative", TEXT, ""),
    _speculative("speculative_config", OBJECT, {}),
    _speculative("num_speculative_tokens", COUNT, 0),
    _further("enable_return_routed_experts", FLAG, False, "routed experts are"),
    _further("return_hidden_states", FLAG, False, "hidden states are"),
    _further("kv_transfer_config", OBJECT, {}, "a transfer of caches is"),
    _further("pooler_config", OBJECT, {}, "pooled states are"),
)
"""Engine options that change what a step delivers, for a batch or a server as a whole."""
