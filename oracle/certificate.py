"""The certificate format: a footprint that no cheaper plan undercuts, and who forces it."""

from __future__ import annotations

import hashlib

import msgspec

from sembridge.plan import Plan

Six = tuple[int, int, int, int, int, int]
"""A footprint's components in the order of equation 5."""

EVERY_PLAN = "every legal plan"
FAMILY = "the oracle's family"


class Certificate(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.certificate/1",
    forbid_unknown_fields=True,
):
    """Claims that ``footprint`` is the lexicographic minimum, and lists what forces it.

    All lists are of demanded consumers. ``crossing``: one for each lineage that a domain needs
    and has no producer of (each forces a send). ``local``: one alone for each lineage that is
    produced in its own domain, two together that share one crossing (each forces a native op).
    ``projecting``: one for each lineage and domain that must project by itself. ``plan`` is the
    SHA-256 of the plan's JSON; ``scope`` says among which plans it is minimal.
    """

    contract: str
    plan: str
    scope: str
    footprint: Six
    crossing: tuple[str, ...]
    local: tuple[tuple[str, ...], ...]
    projecting: tuple[str, ...]


def digest(plan: Plan) -> str:
    """SHA-256 of the plan's JSON."""
    return hashlib.sha256(msgspec.json.encode(plan)).hexdigest()
