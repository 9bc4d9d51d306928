"""The plan IR: five operations over endpoints, and the plan that orders them.

An op is declared, not coded: what it reads, does and must satisfy is in :mod:`sembridge.rules`
and :mod:`sembridge.check`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

VALUE = "value"
"""The surface a producer computes; every other surface is a registered projection's output."""

Count = Annotated[int, Meta(ge=0, le=2**62)]
Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""No control characters: names are printed, and drawn."""

Names = tuple[Name, ...]


class Tag(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The execution tag τ (equation 2): which incarnation a frame or a plan belongs to."""

    request: Annotated[str, Meta(max_length=256)]
    token: Count
    microbatch: Count
    epoch: Count


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Flat slice ``index`` of ``of``, as ``numpy.array_split`` cuts the value."""

    index: Count
    of: Annotated[int, Meta(ge=1, le=2**31)]


class Op(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="op",
    tag=str.lower,
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
):
    """Base of the operations; ``kind`` is the name a file calls it by."""


class Reduce(Op, frozen=True, kw_only=True, gc=False):
    """Native reduction: every target ends with the whole, completed surface.

    On ``value`` the operator is elementwise; on a projection of shards it is the projection's
    registered combine, which turns the sources' partial records into the result.
    """

    operator: Name
    sources: Names
    targets: Names
    surface: Name = VALUE


class Project(Op, frozen=True, kw_only=True, gc=False):
    """Adds a projection's output surface at one endpoint; what was held stays held."""

    projection: Name
    at: Name


class Send(Op, frozen=True, kw_only=True, gc=False):
    """Point-to-point transfer between two domains, whole or one slice."""

    src: Name
    dst: Name
    surface: Name = VALUE
    part: Part | None = None


class Broadcast(Op, frozen=True, kw_only=True, gc=False):
    """Native broadcast inside one domain."""

    src: Name
    dsts: Names
    surface: Name = VALUE


class AllGather(Op, frozen=True, kw_only=True, gc=False, tag="all_gather"):
    """Native all-gather: members pool disjoint slices; each ends with the whole."""

    members: Names
    surface: Name = VALUE


AnyOp = Reduce | Project | Send | Broadcast | AllGather


class Plan(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.plan/1",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A sequence of ops for the contract it names, and the execution tag it was made for."""

    contract: Name
    tag: Tag | None = None
    ops: tuple[AnyOp, ...]


def endpoints_of(op: AnyOp) -> tuple[str, ...]:
    """Every endpoint an op names, in the order of its fields."""
    match op:
        case Send():
            return (op.src, op.dst)
        case Broadcast():
            return (op.src, *op.dsts)
        case Project():
            return (op.at,)
        case AllGather():
            return op.members
        case Reduce():
            return op.sources + op.targets
