"""Batches of requests: their joined need, and the bytes that each choice moves per step."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

from msgspec import Struct
from msgspec.structs import replace

from sembridge.errors import BadInput
from sembridge.io import MAX_BYTES, decode
from sembridge.layout import DTYPES, elements_of
from sembridge.serving.surface import (
    APIS,
    Api,
    Decision,
    Need,
    decide,
    join,
    label,
    paper_surface,
    serve,
)
from sembridge.serving.vllm import OBJECT
from sembridge.surfaces import Complete, Surface, Tokens

MAX_REQUESTS = 1_000_000
ENVELOPE = frozenset({"api", "id", "custom_id", "method", "url"})


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """One line of a batch: its decision, or the error for which an API would refuse it."""

    id: str
    decision: Decision | None = None
    error: str = ""


class Step(Struct, frozen=True, kw_only=True):
    """What a decoding step is priced at: logits of ``vocab`` columns in ``dtype``, token ids in
    the dtype ``ids``, and ``lanes`` producer lanes.
    """

    vocab: int
    lanes: int = 1
    dtype: str = "float32"
    ids: str = "int32"

    def __post_init__(self) -> None:
        """Refuse what cannot be a step.

        Raises:
            BadInput: naming the option.
        """
        for name, value in (("vocab", self.vocab), ("lanes", self.lanes)):
            if value < 1:
                raise BadInput(f"must be at least 1, not {value}", path=f"--{name}")
        for name, dtype in (("dtype", self.dtype), ("ids", self.ids)):
            if dtype not in DTYPES:
                raise BadInput(f"no such dtype {dtype!r}", path=f"--{name}")
        if self.vocab - 1 > DTYPES[self.ids].largest_index:
            raise BadInput(f"{self.ids} cannot hold id {self.vocab - 1}", path="--ids")

    def bytes_of(
        self, surface: Surface, rows: int, *, owner: bool = False, parameters: int = 0
    ) -> int:
        """Payload bytes that ``rows`` rows of one surface move across the boundary.

        A kept value crosses once, cut into one slice per lane; its projection runs at the
        consumer. A projected result alone crosses from every lane, or from the owner; before it
        ``parameters`` bytes a row cross the other way, once.
        """
        if "output_dtype" in surface.__struct_fields__:
            surface = replace(surface, output_dtype=self.ids)
        shape = (rows, self.vocab)
        projected = surface.projected
        if surface.keeps_value or projected is None:
            return elements_of(shape) * DTYPES[self.dtype].itemsize
        back = projected.output_bytes(shape) * (1 if owner else self.lanes)
        return back + rows * parameters


def read_batch(
    path: str | Path,
    *,
    api: Api | None = None,
    defaults: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
) -> Iterator[Entry]:
    """Decide a JSON Lines file, one request a line (``-`` is standard input).

    A line is a request body, or an object that holds one under ``body``, with ``id`` or
    ``custom_id``, ``api`` and ``engine_context`` of its own. A request that an API would refuse
    is an entry with an error; a line that is no JSON object ends the reading.

    Raises:
        BadInput: the file, or a line, cannot be read; or no ``api`` is given.
    """
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            yield _entry(decode(line, dict[str, Any]), f"line {number}", api, defaults, engine)
        except BadInput as error:
            raise error.within(f"{path}:{number}") from None


def _lines(path: str | Path) -> Iterator[bytes]:
    try:
        source = nullcontext(sys.stdin.buffer) if str(path) == "-" else open(path, "rb")  # noqa: SIM115
        with source as file:
            for _ in range(MAX_REQUESTS):
                if not (line := cast("BinaryIO", file).readline(MAX_BYTES + 1)):
                    return
                if len(line) > MAX_BYTES:
                    raise BadInput(f"a line is larger than {MAX_BYTES} bytes", file=str(path))
                yield line
    except OSError as error:
        raise BadInput(f"cannot read: {error.strerror}", file=str(path)) from error
    raise BadInput(f"more than {MAX_REQUESTS} requests", file=str(path))


def _entry(
    line: dict[str, Any],
    number: str,
    api: Api | None,
    defaults: Mapping[str, Any] | None,
    engine: Mapping[str, Any] | None,
) -> Entry:
    inside = isinstance(line.get("body"), dict) and not ENVELOPE.isdisjoint(line)
    body, about = (line["body"], line) if inside else (line, {})
    own = about.get("api", api)
    if own not in APIS:
        known = f"one of {', '.join(APIS)}"
        raise BadInput(f"must be {known}, here or as --api, not {own!r}", path="$.api")
    name = about.get("id", about.get("custom_id"))
    shown = name if isinstance(name, str) else number
    options = engine
    if (context := about.get("engine_context")) is not None:
        OBJECT.verify(context, "$.engine_context")
        options = {**(engine or {}), **context}
    try:
        decision = decide(body, api=own, defaults=defaults, engine=options)
    except BadInput as error:
        return Entry(id=shown, error=str(error))
    return Entry(id=shown, decision=decision)


def summary(entries: Sequence[Entry], step: Step | None = None, *, rows: int = 1) -> dict[str, Any]:
    """A batch's report: each request's surface, their join, and the bytes of each choice.

    Refused requests are listed and take no part in the join, as in an engine. ``rows`` is how
    many positions each sequence contributes to a step.
    """
    decisions = [entry.decision for entry in entries if entry.decision is not None]
    need = join(decision.need for decision in decisions)
    report: dict[str, Any] = {
        "requests": [_shown(entry) for entry in entries],
        "refused": len(entries) - len(decisions),
        "join": None
        if need is None
        else {"surface": label(serve(need)), "paper_surface": paper_surface(need)},
    }
    if step is not None:
        report["bytes_per_step"] = _priced(decisions, need, step, rows)
    return report


def _shown(entry: Entry) -> dict[str, Any]:
    decision = entry.decision
    if decision is None:
        return {"id": entry.id, "surface": "reject", "error": entry.error}
    return {"id": entry.id, **shown(decision)}


def shown(decision: Decision) -> dict[str, Any]:
    """A decision as the ``surface`` command prints it in JSON."""
    return {
        "surface": decision.surface,
        "paper_surface": decision.paper_surface,
        "decided_by": list(decision.decided_by),
        "warnings": list(decision.warnings),
    }


def _priced(
    decisions: Sequence[Decision], need: Need | None, step: Step, rows: int
) -> dict[str, Any]:
    """Payload bytes of one step, ``mapped`` from every lane or from the ``owner`` alone."""
    total = rows * sum(decision.sequences for decision in decisions)

    def both(parts: Sequence[tuple[Surface, int, int]]) -> dict[str, int]:
        return {
            name: sum(
                step.bytes_of(surface, count, owner=owner, parameters=parameters)
                for surface, count, parameters in parts
            )
            for name, owner in (("mapped", False), ("owner", True))
        }

    def served(need: Need, count: int) -> tuple[Surface, int, int]:
        return serve(need), count, need.parameters

    own = [served(decision.need, rows * decision.sequences) for decision in decisions]
    return {
        "vocab": step.vocab,
        "lanes": step.lanes,
        "dtype": step.dtype,
        "ids": step.ids,
        "rows": total,
        "choices": {
            label(surface): both([(surface, total, 0)]) for surface in (Tokens(), Complete())
        },
        "per_request": both(own),
        "batch_wide": both([] if need is None else [served(need, total)]),
    }
