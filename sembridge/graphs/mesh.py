"""The mesh file: groups and what they hold of each input, and the two sides of the cut."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta, Struct, field

from sembridge.contract import Domain, Producer, Value
from sembridge.errors import BadInput
from sembridge.graphs.lattice import Element, unknown
from sembridge.layout import Lane, Placement
from sembridge.plan import Name, Names


class Group(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A process group: its number of ranks, the names that graphs give it, its placements.

    ``placements`` says how the ranks hold parameters, buffers and inputs, by qualified name or
    by a pattern with ``*``. What it does not name is unknown.
    """

    ranks: Annotated[int, Meta(ge=1, le=2**16)]
    names: Names = ()
    placements: dict[Name, Placement] = field(default_factory=dict[str, Placement])


class Lanes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer endpoint and the producer that its lane maps to."""

    id: Name
    domain: Name
    source: Name


class RankMesh(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.mesh/1",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """``producers`` are the ranks of ``group`` in order.

    ``same_program`` is the caller's word that every rank runs the very program that is given,
    constants included; it is not needed where each rank's own program is.
    """

    groups: dict[Name, Group]
    group: Name
    domains: dict[Name, Domain]
    producers: tuple[Producer, ...]
    consumers: tuple[Lanes, ...]
    kind: Name = "activation"
    same_program: bool = False

    def check(self) -> None:
        """Whether the parts fit together.

        Raises:
            BadInput: no such group, a group of another size, or a name that two groups claim.
        """
        if self.group not in self.groups:
            raise BadInput(f"no such group {self.group!r}", path="$.group")
        ranks = self.groups[self.group].ranks
        if len(self.producers) != ranks:
            raise BadInput(
                f"{len(self.producers)} producers for a group of {ranks}", path="$.producers"
            )
        claimed: set[str] = set()
        for name in self.groups:
            if claimed & self.names(name):
                raise BadInput("a name that another group has", path=f"$.groups.{name}.names")
            claimed |= self.names(name)

    def names(self, group: str) -> set[str]:
        """Every name that graphs may call a group by."""
        return {group, *self.groups[group].names}

    def lanes(self) -> tuple[Lane, ...]:
        """The consumers as a boundary edge has them."""
        return tuple(Lane(id=c.id, domain=c.domain, source=c.source) for c in self.consumers)

    def value(self, shape: tuple[int, ...], dtype: str) -> Value:
        """What one producer holds."""
        return Value(kind=self.kind, shape=shape, dtype=dtype)


def inputs_of(
    targets: dict[str, str], ranks: dict[str, int | None], name: str, group: Group
) -> dict[str, Element]:
    """What ``group`` holds of each placeholder: ``targets`` are their qualified names.

    ``ranks`` are the numbers of their axes. An exact name stands before patterns.

    Raises:
        BadInput: an entry that names no input, two patterns that disagree, an axis too far.
    """
    used: set[str] = set()
    found: dict[str, Element] = {}
    for node, target in targets.items():
        matching = {k: p for k, p in group.placements.items() if k in (target, node)}
        matching = matching or {k: p for k, p in group.placements.items() if fnmatchcase(target, k)}
        used |= {k for k in group.placements if k in (target, node) or fnmatchcase(target, k)}
        placements = set(matching.values())
        path = f"$.groups.{name}.placements"
        if len(placements) > 1:
            raise BadInput(f"{' and '.join(matching)} disagree about {target}", path=path)
        if placements:
            found[node] = _placed(placements.pop(), name, target, ranks[node], path)
        else:
            found[node] = unknown(name, target, f"the mesh says nothing of {target}")
    if stray := [key for key in group.placements if key not in used]:
        raise BadInput(
            f"names no input of the graph: {', '.join(sorted(targets.values())[:8])} ...",
            path=f"$.groups.{name}.placements[{stray[0]!r}]",
        )
    return found


def _placed(placement: Placement, group: str, target: str, rank: int | None, path: str) -> Element:
    dim = getattr(placement, "dim", None)
    if dim is not None and rank is not None:
        if not -rank <= dim < rank:
            raise BadInput(f"{dim} is no axis of {target}", path=path)
        placement = type(placement)(dim=dim % rank)  # pyright: ignore[reportCallIssue]
    return Element(group=group, placement=placement, by=target)
