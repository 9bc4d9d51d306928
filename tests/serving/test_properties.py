"""Properties over every field and every value: nothing that a request adds narrows its surface."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembridge.errors import BadInput
from sembridge.serving import vllm
from sembridge.serving.fields import Effect, Field
from sembridge.serving.surface import PAPER_SURFACES, Need, decide, join, paper_surface
from tests.serving.bodies import STARTS, Start
from tests.serving.strategies import anything, values

FIELDS = [(start, field) for start in STARTS for field in start.schema.fields.values()]
NARROWING = [
    (start, field)
    for start, field in FIELDS
    if field.effect >= Effect.MODIFIER and not field.companion
]


def change(start: Start, field: Field) -> st.SearchStrategy[tuple[Start, Field, Any]]:
    return st.tuples(st.just(start), st.just(field), values(field.kind))


fields = st.sampled_from([pair for pair in FIELDS if pair[1].name != "temperature"])
narrowing_changes = st.one_of([change(*pair) for pair in NARROWING])
changes = st.one_of([change(*pair) for pair in FIELDS if pair[1].name != "temperature"])
needs = st.builds(
    Need,
    token=st.sampled_from([e for e in Effect if e not in (Effect.FURTHER, Effect.LOGPROBS)]),
    logprobs=st.none() | st.integers(0, 20),
    prompt=st.booleans(),
    parameters=st.integers(0, 80),
)


def rank(surface: str) -> int:
    return PAPER_SURFACES.index(surface)


def test_many_fields_narrow() -> None:
    assert len(NARROWING) > 60


@settings(max_examples=400)
@given(narrowing_changes)
def test_a_field_away_from_neutral_loses_the_token_surface(
    drawn: tuple[Start, Field, Any],
) -> None:
    start, field, value = drawn
    if value in field.neutral:
        return
    try:
        decision = decide(start.but(**{field.name: value}), api=start.api)
    except BadInput as error:
        assert field.name in error.path
    else:
        assert decision.paper_surface != "tokens"
        assert decision.surface != "tokens"
        assert field.name in decision.decided_by


@settings(max_examples=400)
@given(changes, st.sampled_from([0, 0.7, None]))
def test_an_added_field_never_gives_a_cheaper_surface(
    drawn: tuple[Start, Field, Any], temperature: float | None
) -> None:
    start, field, value = drawn
    body = start.but(temperature=temperature)
    before = decide(body, api=start.api)
    try:
        after = decide({**body, field.name: value}, api=start.api)
    except BadInput:
        return
    assert rank(after.paper_surface) >= rank(before.paper_surface)


@given(fields, anything)
def test_any_json_value_is_read_or_refused(pair: tuple[Start, Field], value: Any) -> None:
    start, field = pair
    try:
        decision = decide(start.but(**{field.name: value}), api=start.api)
    except BadInput as error:
        assert error.path.startswith("$")
    else:
        assert decision.paper_surface in PAPER_SURFACES
        assert decision.decided_by


@given(st.sampled_from(STARTS), st.text(min_size=1), anything.filter(lambda v: v is not None))
def test_an_unknown_field_keeps_complete_logits(start: Start, name: str, value: Any) -> None:
    if name in start.schema.fields:
        return
    decision = decide({**start.greedy, name: value}, api=start.api)
    assert (decision.surface, decision.paper_surface) == ("complete", "complete")
    assert decision.decided_by == (name,)
    assert len(decision.warnings) == 1
    assert "unknown field" in decision.warnings[0]


@given(st.sampled_from(STARTS), st.text(min_size=1))
def test_null_means_not_sent(start: Start, name: str) -> None:
    if name in start.greedy:
        return
    assert decide({**start.greedy, name: None}, api=start.api) == decide(
        start.greedy, api=start.api
    )


@pytest.mark.parametrize("start", STARTS, ids=repr)
def test_null_in_every_known_field_means_not_sent(start: Start) -> None:
    nulls = dict.fromkeys(start.schema.fields)
    assert decide({**nulls, **start.greedy}, api=start.api) == decide(start.greedy, api=start.api)


@given(st.floats(min_value=0, max_value=2, exclude_min=True), st.sampled_from(STARTS))
def test_no_temperature_but_zero_is_greedy(temperature: float, start: Start) -> None:
    decision = decide(start.but(temperature=temperature), api=start.api)
    assert (decision.paper_surface, decision.decided_by) == ("complete", ("temperature",))


@given(st.floats(0.01, 1), st.integers(1, 1000), st.floats(0, 1), st.integers(0, 2**31))
def test_sampling_companions_are_neutral_when_greedy(
    top_p: float, top_k: int, min_p: float, seed: int
) -> None:
    for start in STARTS:
        body = start.but(top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)
        assert decide(body, api=start.api).paper_surface == "tokens"


@given(st.dictionaries(st.sampled_from(sorted(vllm.DEFAULTS)), anything))
def test_a_generation_config_is_read_or_refused(defaults: dict[str, Any]) -> None:
    for start in STARTS:
        try:
            decision = decide(start.greedy, api=start.api, defaults=defaults)
        except BadInput as error:
            assert error.path.startswith("$defaults.")
        else:
            assert decision.paper_surface in ("tokens", "other-projection")


@given(st.lists(needs, min_size=1, max_size=4))
def test_join_is_the_least_upper_bound(batch: list[Need]) -> None:
    joined = join(batch)
    assert joined is not None
    assert all(joined.join(need) == joined for need in batch)
    assert rank(paper_surface(joined)) == max(rank(paper_surface(need)) for need in batch)
    assert join(reversed(batch)) == joined
