"""From a request's effective parameters to what its consumer observes, and which surface serves it.

A request becomes a :class:`Need`; a batch's need is the join of its requests' needs; the kit's
registry ``OFFERS`` answers a need with the cheapest surface that meets it. To let a newly
registered surface serve requests, add one entry to ``OFFERS``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from sembridge.errors import BadInput
from sembridge.serving import openai, vllm
from sembridge.serving.fields import Effect, Field, Finding, examine
from sembridge.surfaces import (
    MAX_K,
    Choice,
    ChosenTokens,
    Complete,
    Logprobs,
    Surface,
    Tokens,
    TopLogprobs,
    record_bytes,
)

Api = Literal["openai", "vllm"]
APIS: tuple[Api, ...] = ("openai", "vllm")

EVERY = sys.maxsize
"""Log-probabilities of more ids than a bounded projection could hold."""


class Need(Struct, frozen=True, kw_only=True, gc=False):
    """What the consumer of a request, or of a batch, observes at each generated position.

    ``token`` is the strongest effect on the token choice; ``logprobs`` how many
    log-probabilities beside the sampled token's are returned, None for none at all; ``prompt``
    whether prompt positions are observed as well. ``own`` is the strongest effect where the kit's
    own sampler draws, if that differs from ``token``; ``parameters`` the bytes of a row's choice.
    """

    token: Effect = Effect.NEUTRAL
    logprobs: int | None = None
    prompt: bool = False
    own: Effect | None = None
    parameters: int = 0

    @property
    def choice(self) -> Effect:
        """The strongest effect on the token as this kit would choose it."""
        return self.token if self.own is None else self.own

    def join(self, other: Need) -> Need:
        """The least need that covers both."""
        if self == other:
            return self
        counts = [count for count in (self.logprobs, other.logprobs) if count is not None]
        token, choice = max(self.token, other.token), max(self.choice, other.choice)
        return Need(
            token=token,
            logprobs=max(counts, default=None),
            prompt=self.prompt or other.prompt,
            own=None if choice is token else choice,
            parameters=max(self.parameters, other.parameters),
        )


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """One request's surface: the kit's answer, the paper's, and why.

    ``decided_by`` names every field that asks for ``paper_surface`` by itself, ``reasons`` says
    why, one each. ``sequences`` is how many rows of logits the request takes in a step.
    """

    surface: str
    paper_surface: str
    decided_by: tuple[str, ...]
    rule: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    need: Need
    sequences: int = 1


def _tokens(need: Need) -> Surface | None:
    return Tokens() if need.choice is Effect.NEUTRAL and need.logprobs is None else None


def _chosen_tokens(need: Need) -> Surface | None:
    return (
        ChosenTokens(choices=()) if need.choice <= Effect.KEYED and need.logprobs is None else None
    )


def _top_logprobs(need: Need) -> Surface | None:
    asked = need.logprobs
    if asked is None or asked > MAX_K or need.prompt or need.choice > Effect.KEYED:
        return None
    return TopLogprobs(k=asked)


def _complete(need: Need) -> Surface | None:
    return Complete() if need.logprobs is None else None


def _logprobs(_: Need) -> Surface | None:
    return Logprobs()


OFFERS: tuple[Callable[[Need], Surface | None], ...] = (
    _tokens,
    _chosen_tokens,
    _top_logprobs,
    _complete,
    _logprobs,
)
"""The kit's surfaces, cheapest first; the last one meets every need."""

PAPER_SURFACES = ("tokens", "other-projection", "complete", "logprobs")

RULES: dict[Effect, str] = {
    Effect.NEUTRAL: "greedy, one sequence, every modifier neutral: argmax of complete logits",
    Effect.MODIFIER: "stateless modifiers: parameters of a registered projection",
    Effect.KEYED: "sampling under a (seed, position) key: parameters of a registered projection",
    Effect.PROJECTION: "deterministic, but no registered projection: complete logits",
    Effect.BLOCK: "a token block is never cut to one column: complete logits",
    Effect.RNG: "stochastic sampling keeps complete logits: no generator state crosses",
    Effect.FULL: "complete logits are observed, or cannot be ruled out",
    Effect.LOGPROBS: "log-probabilities win over everything that would narrow the surface",
}


def serve(need: Need) -> Surface:
    """The cheapest surface of the kit that meets ``need``."""
    met = (offer(need) for offer in OFFERS)
    return next(surface for surface in met if surface is not None)


def label(surface: Surface) -> str:
    """A surface's name, its size in brackets where it has one.

    >>> label(Tokens())
    'tokens'
    """
    size = getattr(surface, "k", None)
    tag = str(surface.__struct_config__.tag)
    return tag if size is None else f"{tag}({size})"


def paper_surface(need: Need) -> str:
    """What the paper's contract gives (§2.2): one of ``PAPER_SURFACES``."""
    if need.logprobs is not None:
        return "logprobs"
    if need.token >= Effect.RNG:
        return "complete"
    return "other-projection" if need.token >= Effect.MODIFIER else "tokens"


_ALONE = {
    effect: Need(token=Effect.NEUTRAL if effect is Effect.FURTHER else effect) for effect in Effect
}


def join(needs: Iterable[Need]) -> Need | None:
    """The need of a batch; None for a batch that decodes nothing."""
    joined: Need | None = None
    for need in needs:
        joined = need if joined is None else joined.join(need)
    return joined


def decide(
    body: Mapping[str, Any],
    *,
    api: Api,
    defaults: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
) -> Decision:
    """The consumer surface of one request body.

    Args:
        body: a chat, completions or responses body (``openai``), or ``SamplingParams`` (``vllm``).
        api: whose schema ``body`` follows.
        defaults: the model's generation config, which gives what the request leaves out.
        engine: engine options that change what a step delivers.

    Raises:
        BadInput: a field of the wrong type or out of range, or a combination of fields that the
            API documents as invalid; the path names the field.
    """
    schema = openai.endpoint(body) if api == "openai" else vllm.SAMPLING
    sent = {name: value for name, value in body.items() if value is not None}
    configured = _configured(sent, schema.fields, defaults) if defaults else {}
    effective = {**configured, **sent}
    findings = [*examine(schema.fields, effective)]
    if engine:
        findings += examine(vllm.ENGINE, engine, "$engine")
    if "temperature" not in effective:
        note = f"temperature is unset, so 1.0: {vllm.SAMPLED}"
        findings.append(Finding(field="temperature", effect=Effect.RNG, note=note))
    for clash in schema.clashes:
        if clash.field in sent and clash.when(sent):
            raise BadInput(clash.message, path=f"$.{clash.field}")
    return _decision(effective, findings, frozenset(configured), engine or {})


def _configured(
    sent: Mapping[str, Any], fields: Mapping[str, Field], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """What the generation config adds to a request; the keys that engines skip are not read."""
    taken: dict[str, Any] = {}
    for name, field in vllm.DEFAULTS.items():
        value = defaults.get(name)
        if value is None:
            continue
        field.kind.verify(value, f"$defaults.{name}")
        if name in fields and name not in sent:
            taken[name] = value
    return taken


def _decision(
    effective: Mapping[str, Any],
    findings: list[Finding],
    configured: frozenset[str],
    engine: Mapping[str, Any],
) -> Decision:
    asked = [(finding, _need(finding, effective)) for finding in findings]
    need = _answered(join(each for _, each in asked) or Need(), findings, effective, engine)
    paper = paper_surface(need)
    strongest = need.choice if need.logprobs is None else Effect.LOGPROBS
    deciding = {
        finding.field: finding.note
        for finding, each in asked
        if strongest and paper_surface(each) == paper
    } or {"temperature": "temperature is exactly 0"}
    warnings = [finding.warning for finding in findings if finding.warning]
    warnings += [
        f"$.{name}: {effective[name]!r} comes from the generation config"
        for name in deciding
        if name in configured
    ]
    return Decision(
        surface=label(serve(need)),
        paper_surface=paper,
        decided_by=tuple(deciding),
        rule=RULES[strongest],
        reasons=tuple(deciding.values()),
        warnings=tuple(dict.fromkeys(warnings)),
        need=need,
        sequences=_sequences(effective),
    )


def _need(finding: Finding, effective: Mapping[str, Any]) -> Need:
    """What one active field asks for by itself."""
    if finding.effect is Effect.LOGPROBS:
        return Need(
            logprobs=_count(effective[finding.field]),
            prompt=finding.field.startswith("prompt_logprob") or effective.get("echo") is True,
        )
    return _ALONE[finding.effect]


def _answered(
    need: Need, findings: list[Finding], effective: Mapping[str, Any], engine: Mapping[str, Any]
) -> Need:
    """The need as the kit's own sampler and projections would meet it.

    Where the engine samples by the kit's kernel (option ``keyed_sampling``) and the request
    carries a seed, what it draws is keyed. Engines that return raw logits in place of
    log-probabilities keep complete logits.
    """
    own, keyed = need.own, engine.get("keyed_sampling") is True
    if need.token is Effect.RNG and keyed and "seed" in effective and not effective.get("min_p"):
        others = [f.effect for f in findings if f.effect not in (Effect.RNG, Effect.LOGPROBS)]
        own = max([Effect.KEYED, *others])
    if need.logprobs is not None and engine.get("logprobs_mode") == "raw_logits":
        need = replace(need, logprobs=EVERY)
    parameters = 0
    if (need.token if own is None else own) in (Effect.MODIFIER, Effect.KEYED):
        ids, biases = effective.get("allowed_token_ids") or (), effective.get("logit_bias") or ()
        parameters = record_bytes(Choice.HEADER, "") + 4 * len(ids) + 8 * len(biases)
    return replace(need, own=own, parameters=parameters)


def _count(value: object) -> int:
    """How many log-probabilities a field's value asks for beside the sampled token's."""
    if isinstance(value, bool):
        return 0
    return value if isinstance(value, int) and value >= 0 else EVERY


def _sequences(effective: Mapping[str, Any]) -> int:
    """Rows of logits that a request takes in a step: its prompts times its sequences."""
    prompt = effective.get("prompt")
    prompts = 1
    if isinstance(prompt, list):
        items = cast("list[object]", prompt)
        prompts = max(1, sum(isinstance(item, str | list) for item in items))
    return prompts * max(effective.get("n", 1), effective.get("best_of", 1))
