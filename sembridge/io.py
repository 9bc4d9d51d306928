"""Contracts and plans as JSON files: strict, bounded, never half read, written whole or not at all.

Files may come from strangers, so sizes and counts are bounded before anything is allocated for
them; nothing is ever evaluated.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.obligations import resolve
from sembridge.plan import Plan

T = TypeVar("T")

MAX_BYTES = 16 * 2**20
MAX_OBJECTS = 300_000
MAX_STRINGS = 1_500_000
MAX_KEYS = 200_000
"""Most keys of one object (a logit bias may name a whole vocabulary)."""

_AT = re.compile(r"^(?P<what>.*) - at `(?:key in )?(?P<path>\$.*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<key>.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<key>.*)`$", re.DOTALL)


def decode_contract(data: bytes) -> Contract:
    """A contract from JSON, its references checked.

    Raises:
        BadInput: with the JSON path of the first field that is wrong.
    """
    contract = decode(data, Contract)
    resolve(contract)
    return contract


def decode_plan(data: bytes) -> Plan:
    """A plan from JSON; whether its endpoints exist is the checker's to say.

    Raises:
        BadInput: with the JSON path of the first field that is wrong.
    """
    plan = decode(data, Plan)
    for i, op in enumerate(plan.ops):
        part = getattr(op, "part", None)
        if part is not None and part.index >= part.of:
            raise BadInput(
                f"slice {part.index} of {part.of} does not exist", path=f"$.ops[{i}].part.index"
            )
    return plan


def read_contract(path: str | Path) -> Contract:
    """:func:`decode_contract` on a file (``-`` is standard input)."""
    return _named(path, decode_contract)


def read_plan(path: str | Path) -> Plan:
    """:func:`decode_plan` on a file (``-`` is standard input)."""
    return _named(path, decode_plan)


def encode(document: Any) -> bytes:
    """Indented JSON with a final newline; field order is the type's, so bytes are stable."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def write(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        BadInput: the folder is missing or not writable.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a device or a pipe: there is nothing to replace
        try:
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise BadInput(f"cannot write: {error.strerror}", file=str(path)) from error
        return
    path = path.resolve()
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(f"cannot write: {error.strerror}", file=str(path)) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise BadInput(f"cannot write: {error.strerror}", file=str(path)) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_bytes(path: str | Path) -> bytes:
    """A file's bytes, refused before it is read where it is too large.

    Raises:
        BadInput: no such file, or over ``MAX_BYTES``.
    """
    try:
        with open(0 if str(path) == "-" else path, "rb", closefd=str(path) != "-") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"cannot read: {error.strerror}", file=str(path)) from error
    if len(data) > MAX_BYTES:
        raise BadInput(f"larger than {MAX_BYTES} bytes", file=str(path))
    return data


def decode(data: bytes, kind: type[T]) -> T:
    """Strict JSON to a type: no unknown, missing or repeated keys, no NaN, bounded depth.

    Raises:
        BadInput: with the JSON path of the first field that is wrong.
    """
    keys = _scan(data)
    config = getattr(kind, "__struct_config__", None)
    if config is not None:
        if keys is None:
            raise BadInput("expected an object", path="$")
        if config.tag_field and config.tag_field not in keys:
            raise BadInput("missing key", path=f"$.{config.tag_field}")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        located = _located(str(error))
        if "[...]" in located.path:
            located.path = _infinite(json.loads(data), "$") or located.path
        raise BadInput(located.message, path=located.path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", path="$") from None


def _scan(data: bytes) -> set[str] | None:
    """Bound a document and find repeated keys, keeping nothing of it; the root object's keys."""
    objects = data.count(b"{")
    if objects > MAX_OBJECTS:
        raise BadInput(f"more than {MAX_OBJECTS} objects", path="$")
    if data.count(b'"') > 2 * MAX_STRINGS:
        raise BadInput(f"more than {MAX_STRINGS} strings", path="$")
    if data.count(b":") > 32 * objects + MAX_KEYS:
        raise BadInput(f"more than {MAX_KEYS} keys in one object", path="$")
    try:
        root: object = _KEYS.decode(data.decode())
    except RecursionError:
        raise BadInput("nested too deeply", path="$") from None
    except ValueError as error:
        raise BadInput(f"not JSON: {error}", path="$") from None
    return cast("set[str]", root) if isinstance(root, set) else None


def _keys_only(pairs: list[tuple[str, Any]]) -> set[str]:
    keys = set[str]()
    for key, _ in pairs:
        if key in keys:
            raise BadInput(f"key {key[:64]!r} appears twice in one object", path="$")
        keys.add(key)
    return keys


def _no_constant(name: str) -> None:
    raise BadInput(f"{name} is not JSON", path="$")


_KEYS = json.JSONDecoder(object_pairs_hook=_keys_only, parse_constant=_no_constant)


def _located(text: str) -> BadInput:
    """msgspec's message as path and reason."""
    match = _AT.match(text)
    what, path = (match["what"], match["path"]) if match else (text, "$")
    for pattern, reason in ((_UNKNOWN, "unknown key"), (_MISSING, "missing key")):
        if field := pattern.match(what):
            key = field["key"]
            return BadInput(reason, path=f"{path}.{key if _plain(key) else repr(key[:64])}")
    return BadInput(what[:1].lower() + what[1:], path=path)


def _infinite(found: object, path: str) -> str | None:
    """Path of the first number that no float holds, which msgspec does not name in a dict."""
    if isinstance(found, float) and math.isinf(found):
        return path
    items: list[tuple[str, object]] = []
    if isinstance(found, dict):
        keyed = cast("dict[str, object]", found)
        items = [(f"{path}.{key if _plain(key) else repr(key[:64])}", keyed[key]) for key in keyed]
    elif isinstance(found, list):
        items = [(f"{path}[{i}]", one) for i, one in enumerate(cast("list[object]", found))]
    return next(filter(None, (_infinite(one, at) for at, one in items)), None)


def _plain(key: str) -> bool:
    return key.isprintable() and len(key) <= 64


def _named(path: str | Path, read: Any) -> Any:
    try:
        return read(read_bytes(path))
    except BadInput as error:
        raise error.within(error.file or str(path)) from None
