"""What a request's field may hold, and what a value away from neutral does to the surface.

A schema is a table of :class:`Field`; to know one more field, add one entry to one table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Protocol, cast

from msgspec import Struct

from sembridge.errors import BadInput


class Effect(IntEnum):
    """What an active field asks of the boundary; the largest of a request decides its surface."""

    NEUTRAL = 0
    """N: works on token ids at the consumer, or on the prompt."""
    FURTHER = 1
    """X: a further surface beside the tokens, which crosses on an edge of its own."""
    MODIFIER = 2
    """Pj, stateless: a bias or a mask that the request itself carries."""
    KEYED = 3
    """Drawn by the kit's own sampler under a key that the request carries."""
    PROJECTION = 4
    """Pj: deterministic, but a projection whose state lives at the producer."""
    BLOCK = 5
    """A token block [n, 1 + k] with accepted counts, never cut to one column."""
    RNG = 6
    """Needs the generator's state, which the contract does not carry."""
    FULL = 7
    """F: complete logits; every unknown field too."""
    LOGPROBS = 8
    """Log-probabilities, which win over everything that would narrow the surface."""


class Kind(Protocol):
    """The JSON values that a field accepts."""

    def verify(self, value: object, path: str) -> None:
        """Nothing where ``value`` is accepted.

        Raises:
            BadInput: with ``path``, or the path of the part that is wrong.
        """
        ...


class Anything(Struct, frozen=True):
    """Any JSON value: prompts, schemas, and fields that decide whatever they hold."""

    def verify(self, value: object, path: str) -> None:
        """Accepts everything."""


class Flag(Struct, frozen=True):
    """``true`` or ``false``; 0 and 1 are not."""

    def verify(self, value: object, path: str) -> None:
        """A JSON boolean."""
        if not isinstance(value, bool):
            raise _wrong("true or false", value, path)


class Integer(Struct, frozen=True):
    """A JSON integer in [low, high]; neither a boolean nor 2.0."""

    low: int = -(2**63)
    high: int = 2**63 - 1

    def verify(self, value: object, path: str) -> None:
        """An integer within the bounds."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong("an integer", value, path)
        if not self.low <= value <= self.high:
            raise BadInput(f"{_short(value)} is not in [{self.low}, {self.high}]", path=path)


class Number(Struct, frozen=True):
    """A finite JSON number in [low, high], or in (low, high] where ``above`` is set."""

    low: float = -sys.float_info.max
    high: float = sys.float_info.max
    above: bool = False

    def verify(self, value: object, path: str) -> None:
        """A number within the bounds."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong("a number", value, path)
        low_enough = self.low < value if self.above else self.low <= value
        if not (low_enough and value <= self.high):
            bracket = "(" if self.above else "["
            bounds = f"{bracket}{self.low:g}, {self.high:g}]"
            raise BadInput(f"{_short(value)} is not in {bounds}", path=path)


class Text(Struct, frozen=True):
    """A JSON string of at least ``shortest`` characters."""

    shortest: int = 0

    def verify(self, value: object, path: str) -> None:
        """A string that is long enough."""
        if not isinstance(value, str):
            raise _wrong("a string", value, path)
        if len(value) < self.shortest:
            raise BadInput("must not be empty", path=path)


class Choice(Struct, frozen=True):
    """One of a few values, of the same JSON type."""

    values: tuple[str | int, ...]

    def verify(self, value: object, path: str) -> None:
        """One of the values."""
        if isinstance(value, bool) or value not in self.values:
            raise _wrong(f"one of {', '.join(map(repr, self.values))}", value, path)


class ListOf(Struct, frozen=True):
    """A JSON array of at least ``shortest`` items of one kind."""

    item: Kind
    shortest: int = 0

    def verify(self, value: object, path: str) -> None:
        """An array whose every item is of the kind."""
        if not isinstance(value, list):
            raise _wrong("an array", value, path)
        items = cast("list[object]", value)
        if len(items) < self.shortest:
            raise BadInput("must not be empty", path=path)
        for i, item in enumerate(items):
            self.item.verify(item, f"{path}[{i}]")


class MapOf(Struct, frozen=True):
    """A JSON object from names to values of one kind, names being token ids where asked."""

    item: Kind = Anything()
    ids: bool = False

    def verify(self, value: object, path: str) -> None:
        """An object whose every value is of the kind."""
        if not isinstance(value, dict):
            raise _wrong("an object", value, path)
        if not self.ids and isinstance(self.item, Anything):
            return
        for name, item in cast("dict[str, object]", value).items():
            where = child(path, name)
            if self.ids and not (name.isascii() and name.isdigit()):
                raise BadInput("the key must be a token id", path=where)
            self.item.verify(item, where)


class Either(Struct, frozen=True):
    """A value that one of several kinds accepts."""

    kinds: tuple[Kind, ...]

    def verify(self, value: object, path: str) -> None:
        """A value of the first kind that takes it; the complaint that went deepest otherwise."""
        complaints: list[BadInput] = []
        for kind in self.kinds:
            try:
                return kind.verify(value, path)
            except BadInput as complaint:
                complaints.append(complaint)
        raise max(complaints, key=lambda complaint: len(complaint.path))


class Record(Struct, frozen=True):
    """A JSON object with fields of its own, which decide for it."""

    fields: dict[str, Field]
    required: tuple[str, ...] = ()

    def verify(self, value: object, path: str) -> None:
        """An object whose known fields are well formed; :func:`examine` reports the others."""
        if not isinstance(value, dict):
            raise _wrong("an object", value, path)
        record = cast("dict[str, object]", value)
        for name in self.required:
            if record.get(name) is None:
                raise BadInput("missing key", path=child(path, name))
        for name, field in self.fields.items():
            if record.get(name) is not None:
                field.kind.verify(record[name], child(path, name))


class Field(Struct, frozen=True, kw_only=True):
    """One field of a request type.

    ``neutral`` lists the values, besides ``null``, at which the field is not active. ``judge``
    replaces that test where the value itself says which effect it has. A ``companion`` acts only
    while sampling, where the temperature has decided already. ``warning`` is said of every
    active value; ``note`` says why the field has its effect.
    """

    name: str
    kind: Kind
    effect: Effect = Effect.NEUTRAL
    neutral: tuple[object, ...] = ()
    judge: Callable[[Any], Effect] | None = None
    companion: bool = False
    note: str = ""
    warning: str = ""

    def weigh(self, value: object) -> Effect:
        """The effect of one well-formed value."""
        if self.judge is not None:
            return self.judge(value)
        return Effect.NEUTRAL if self.companion or value in self.neutral else self.effect


class Finding(Struct, frozen=True, kw_only=True, gc=False):
    """One active field of a request: its top-level name, effect and reason."""

    field: str
    effect: Effect
    note: str = ""
    warning: str = ""


class Clash(Struct, frozen=True, kw_only=True):
    """A combination that the API documents as invalid.

    ``field`` is the one to name; ``when`` is asked of requests that send it.
    """

    field: str
    message: str
    when: Callable[[Mapping[str, Any]], bool]


class Schema(Struct, frozen=True, kw_only=True):
    """A request type: its fields by name and its invalid combinations."""

    name: str
    fields: dict[str, Field]
    clashes: tuple[Clash, ...] = ()


def table(*groups: Field | tuple[Field, ...]) -> dict[str, Field]:
    """Fields by name.

    Raises:
        ValueError: a name appears twice.
    """
    fields: dict[str, Field] = {}
    for group in groups:
        for field in group if isinstance(group, tuple) else (group,):
            if field.name in fields:
                raise ValueError(f"field {field.name!r} is declared twice")
            fields[field.name] = field
    return fields


def plain(kind: Kind, *names: str) -> tuple[Field, ...]:
    """Neutral fields of one kind."""
    return tuple(Field(name=name, kind=kind) for name in names)


def examine(
    fields: Mapping[str, Field], body: Mapping[str, object], path: str = "$", root: str = ""
) -> Iterator[Finding]:
    """Every active field of ``body``; a field that ``fields`` lacks asks for complete logits.

    ``null`` means not sent. Inside a record, ``root`` is the top-level field that holds it.

    Raises:
        BadInput: a value of the wrong type or out of range.
    """
    for name, value in body.items():
        if value is None:
            continue
        field = fields.get(name)
        if field is None:
            where = child(path, name)
            yield Finding(
                field=root or name,
                effect=Effect.FULL,
                note="unknown field",
                warning=f"{where}: unknown field, so complete logits",
            )
            continue
        where = f"{path}.{name}"
        field.kind.verify(value, where)
        if isinstance(field.kind, Record):
            inner = cast("dict[str, object]", value)
            yield from examine(field.kind.fields, inner, where, root or name)
        elif effect := field.weigh(value):
            warning = f"{where}: {field.warning}" if field.warning else ""
            yield Finding(field=root or name, effect=effect, note=field.note, warning=warning)


def child(path: str, name: str) -> str:
    """The JSON path of a key, quoted where it is no plain name."""
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{json.dumps(name[:64])}]"


def _wrong(expected: str, value: object, path: str) -> BadInput:
    if isinstance(value, dict | list):
        found = "an object" if isinstance(value, dict) else "an array"
    else:
        found = _short(value)
    return BadInput(f"must be {expected}, not {found}", path=path)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
