"""Batches: joins, bytes per step, and files of requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.serving import surface
from sembridge.serving.batch import Entry, Step, read_batch, summary
from sembridge.serving.surface import Need, decide, join
from sembridge.surfaces import Complete, Logprobs, Projected, Tokens
from tests.serving.bodies import CHAT, COMPLETION, PARAMS

GREEDY = PARAMS.greedy
SAMPLED: dict[str, Any] = {"temperature": 1}
SCORED = {"temperature": 0, "logprobs": 5}
MINIMAX = Step(vocab=200_064, lanes=4)


def entries(*bodies: dict[str, Any]) -> list[Entry]:
    return [Entry(id=str(i), decision=decide(body, api="vllm")) for i, body in enumerate(bodies)]


def lines(path: Path, *documents: Any) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def test_minimax_at_four_lanes_and_a_batch_of_four() -> None:
    assert MINIMAX.bytes_of(Complete(), 4) == 3_201_024
    assert MINIMAX.bytes_of(Logprobs(), 4) == 3_201_024
    assert MINIMAX.bytes_of(Tokens(), 4) == 64
    assert MINIMAX.bytes_of(Tokens(), 4, owner=True) == 16


@pytest.mark.parametrize(
    ("step", "complete", "tokens"),
    [
        (Step(vocab=151_936, lanes=2, dtype="bfloat16"), 2 * 151_936 * 3, 24),
        (Step(vocab=10, lanes=3), 120, 36),
        (Step(vocab=10, lanes=3, ids="int64"), 120, 72),
        (Step(vocab=2**24 + 2, lanes=1), 12 * (2**24 + 2), 12),
    ],
)
def test_bytes_follow_dtypes_lanes_and_vocabulary(step: Step, complete: int, tokens: int) -> None:
    assert step.bytes_of(Complete(), 3) == complete
    assert step.bytes_of(Tokens(), 3) == tokens


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"vocab": 0}, "--vocab"),
        ({"vocab": 5, "lanes": 0}, "--lanes"),
        ({"vocab": 5, "dtype": "float31"}, "--dtype"),
        ({"vocab": 5, "ids": "int31"}, "--ids"),
        ({"vocab": 2**24 + 2, "ids": "float32"}, "--ids"),
        ({"vocab": 129, "ids": "int8"}, "--ids"),
    ],
)
def test_what_cannot_be_a_step(options: dict[str, Any], path: str) -> None:
    with pytest.raises(BadInput) as caught:
        Step(**options)
    assert caught.value.path == path


def test_a_mixed_batch_reports_what_could_cross_and_what_would() -> None:
    report = summary(entries(GREEDY, GREEDY, SCORED), MINIMAX)
    row = 200_064 * 4
    assert report["join"] == {"surface": "top_logprobs(5)", "paper_surface": "logprobs"}
    assert report["bytes_per_step"]["per_request"] == {"mapped": 32 + 4 * 56, "owner": 8 + 56}
    assert report["bytes_per_step"]["batch_wide"] == {"mapped": 3 * 4 * 56, "owner": 3 * 56}
    whole = summary(entries(GREEDY, GREEDY, {**SCORED, "logprobs": -1}), MINIMAX)
    assert whole["join"] == {"surface": "logprobs", "paper_surface": "logprobs"}
    assert whole["bytes_per_step"]["per_request"] == {"mapped": row + 32, "owner": row + 8}
    assert whole["bytes_per_step"]["batch_wide"] == {"mapped": 3 * row, "owner": 3 * row}
    assert report["bytes_per_step"]["choices"]["tokens"] == {"mapped": 48, "owner": 12}


def test_the_parameters_of_a_choice_are_priced() -> None:
    biased = {**GREEDY, "logit_bias": {"5": 1, "6": -2}, "allowed_token_ids": [5, 6, 7]}
    report = summary(entries(GREEDY, biased), MINIMAX)
    assert report["join"]["surface"] == "chosen_tokens"
    row = 40 + 2 * 8 + 3 * 4
    assert report["bytes_per_step"]["per_request"] == {"mapped": 16 + 16 + row, "owner": 8 + row}
    assert report["bytes_per_step"]["batch_wide"] == {"mapped": 32 + 2 * row, "owner": 8 + 2 * row}


def test_rows_count_sequences_prompts_and_positions() -> None:
    several = decide(COMPLETION.but(prompt=["a", "b"], n=3), api="openai")
    assert several.sequences == 6
    assert decide(COMPLETION.but(prompt=[1, 2, 3]), api="openai").sequences == 1
    report = summary([Entry(id="a", decision=several)], MINIMAX, rows=2)
    assert report["bytes_per_step"]["rows"] == 12


def test_a_batch_that_decodes_nothing_moves_nothing() -> None:
    report = summary([], MINIMAX)
    assert report["join"] is None
    assert report["bytes_per_step"]["batch_wide"] == {"mapped": 0, "owner": 0}


def test_an_aborted_request_and_its_slots_next_one_leave_no_trace() -> None:
    batch = [decide(body, api="vllm").need for body in (GREEDY, SCORED, SAMPLED)]
    assert join(batch) == Need(token=batch[2].token, logprobs=5)
    assert join([batch[0], batch[2]]) == batch[2]
    reused = [batch[0], decide(GREEDY, api="vllm").need]
    assert join(reused) == Need()


def test_a_newly_registered_surface_slots_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Top(Struct, frozen=True, kw_only=True, tag_field="type", tag="top_logprobs"):
        k: int
        keeps_value: ClassVar[bool] = False

        @property
        def projected(self) -> Projected:
            class Sized(Projected, frozen=True, kw_only=True):
                def output_bytes(self, shape: tuple[int, ...]) -> int:
                    return shape[0] * 64

            return Sized(name="top", output="top", dtype="float32", ties="", nans="")

    def top(need: Need) -> Any:
        return None if need.logprobs is None or need.token else Top(k=need.logprobs)

    first, *rest = surface.OFFERS
    monkeypatch.setattr(surface, "OFFERS", (first, top, *rest))
    batch = entries(GREEDY, SCORED, {**SCORED, "logprobs": 2})
    report = summary(batch, MINIMAX)
    assert [request["surface"] for request in report["requests"]] == [
        "tokens",
        "top_logprobs(5)",
        "top_logprobs(2)",
    ]
    assert report["join"] == {"surface": "top_logprobs(5)", "paper_surface": "logprobs"}
    assert report["bytes_per_step"]["batch_wide"] == {"mapped": 768, "owner": 192}
    assert decide({**SCORED, "temperature": 1}, api="vllm").surface == "logprobs"


def test_lines_may_be_bodies_or_hold_them(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "requests.jsonl",
        CHAT.greedy,
        {"custom_id": "b", "url": "/v1/chat/completions", "body": CHAT.but(logprobs=True)},
        {"id": "c", "api": "vllm", "body": GREEDY, "engine_context": {"speculative": "ngram"}},
        {"id": "d", "body": CHAT.but(temperature="hot")},
        CHAT.but(body={"temperature": 0}),
    )
    read = list(read_batch(path, api="openai"))
    assert [entry.id for entry in read] == ["line 1", "b", "c", "d", "line 5"]
    assert [entry.decision and entry.decision.paper_surface for entry in read] == [
        "tokens",
        "logprobs",
        "other-projection",
        None,
        "complete",
    ]
    assert read[3].error == '$.temperature: must be a number, not "hot"'
    report = summary(read)
    assert report["refused"] == 1
    assert report["requests"][3] == {"id": "d", "surface": "reject", "error": read[3].error}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "expected `object`"),
        (b'{"temperature": 0, "temperature": 1}', "appears twice"),
        (b'{"temperature": NaN}', "NaN is not JSON"),
        (b'{"api": "tgi", "body": {}}', "must be one of openai, vllm"),
        (b'{"id": "a", "body": {}, "engine_context": 5}', "must be an object"),
    ],
)
def test_a_line_that_cannot_be_read_names_the_line(
    tmp_path: Path, line: bytes, message: str
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b'{"temperature": 0}\n\n' + line + b"\n")
    with pytest.raises(BadInput, match=message) as caught:
        list(read_batch(path, api="vllm"))
    assert caught.value.file == f"{path}:3"


def test_a_batch_needs_an_api(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--api"):
        list(read_batch(lines(tmp_path / "r.jsonl", GREEDY)))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        list(read_batch(tmp_path / "none.jsonl", api="vllm"))
