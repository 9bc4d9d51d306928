"""The lattice of the interpretation: what one value is across the ranks of one group.

``replicate`` says that every rank holds the same value, ``shard(d)`` that the ranks hold equal
blocks of it along axis d in rank order, ``partial(op)`` that combining what they hold with op
gives it. The three stand side by side below ``unknown``, the top.
"""

from __future__ import annotations

from msgspec import Struct

from sembridge.layout import Partial, Placement, Replicate, Shard

REPLICATE = Replicate()
SUM = Partial(op="sum")


class Element(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a value is across ``group``; ``placement`` None is unknown.

    ``by`` is the node or input that established it, ``why`` the reason where it is unknown.
    ``completed`` names the collective that made a replica the same on every rank; without one
    the caller's word for the inputs is all that says so, which is layout and no lineage.
    """

    group: str
    placement: Placement | None
    by: str
    why: str = ""
    completed: str | None = None

    def __str__(self) -> str:
        match self.placement:
            case Replicate():
                return f"replicate({self.group})"
            case Shard(dim=dim):
                return f"shard({dim}, {self.group})"
            case Partial(op=op):
                return f"partial({op}, {self.group})"
            case None:
                return "unknown"


State = Element | tuple[Element, ...]
"""One tensor's element, or one for each tensor of a node that has several."""


def unknown(group: str, by: str, why: str) -> Element:
    """The top of the lattice, with the node at which knowledge ended."""
    return Element(group=group, placement=None, by=by, why=why)


def join(a: Element, b: Element, at: str) -> Element:
    """Least upper bound: what holds whichever of two ways a value came by node ``at``.

    >>> x = Element(group="tp", placement=REPLICATE, by="all_reduce", completed="all_reduce")
    >>> str(join(x, x, "cond")), str(join(x, Element(group="tp", placement=SUM, by="mm"), "cond"))
    ('replicate(tp)', 'unknown')
    """
    if a.placement is None or b.placement is None:
        return a if a.placement is None else b
    if a.placement != b.placement:
        return unknown(a.group, at, f"{a} on one way and {b} on another")
    if a.completed is None or b.completed is None:
        return Element(group=a.group, placement=a.placement, by=a.by)
    return a
