"""Verdicts and violations. Legal, illegal, unknown: three words that nothing merges."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Verdict(StrEnum):
    """What a judge says of a plan. An error is an exception, never a verdict."""

    LEGAL = "legal"
    ILLEGAL = "illegal"
    UNKNOWN = "unknown"


class Violation(Struct, frozen=True, kw_only=True, gc=False):
    """One broken rule: ``op`` is the index into the plan's ops, None where no op is to blame."""

    rule: str
    op: int | None = None
    endpoint: str | None = None
    message: str
