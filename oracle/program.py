"""The oracle's family: which steps a program is made of, for a contract within the bounds.

A program serves every demanded consumer once and ends when each observes its surfaces:

- ``reduce``: all producers to all producers, once, where a reduction is outstanding;
- ``send``: a holder, in one piece, to an unserved demanded consumer of another domain;
- ``broadcast``: a holder to some unserved demanded consumers of its own domain;
- ``materialize``: under a replicate placement with neither class nor owner, the unserved remote
  lanes of one domain, two or more, as slices from their mapped producers and an all_gather;
- ``project``: at a consumer that was served the value; at a producer that then sends the result.

What serves a consumer is the value, or, where the surface does not keep the value, the projected
result. The shared checker decides which programs are accepted.
"""

from __future__ import annotations

from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.layout import stable_order
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, AllGather, AnyOp, Part, Send


class Bounds(Struct, frozen=True, kw_only=True):
    """Sizes up to which the family is enumerated: |P|, demanded consumers, their domains."""

    producers: int = 4
    demanded: int = 4
    domains: int = 3

    def check(self, ob: Obligations) -> None:
        """Raise where a contract is outside.

        Raises:
            BadInput: names the bound and the contract's figure.
        """
        check_steps(ob)
        domains = {ob.domain_of[c] for c in ob.demanded}
        for what, has, bound, path in (
            ("producers", len(ob.producers), self.producers, "$.producers"),
            ("demanded consumers", len(ob.demanded), self.demanded, "$.consumers"),
            ("consumer domains", len(domains), self.domains, "$.consumers"),
        ):
            if has > bound:
                raise BadInput(
                    f"{has} {what} are outside the bounded family of at most {bound} "
                    "(--bounds widens it)",
                    path=path,
                )


def check_steps(ob: Obligations) -> None:
    """Raise where a contract needs steps that the family does not have.

    Raises:
        BadInput: shards are to be combined, or parameters to be delivered before a projection.
    """
    if ob.completes != VALUE or ob.informs:
        what = "a combine of shards" if ob.completes != VALUE else "parameters of a projection"
        raise BadInput(f"{what}: outside the bounded family", path="$.facts.surface.value")


BOUNDS = Bounds()
"""The paper's: at most four producers, four demanded consumers, three consumer domains (§6.2)."""


def surfaces_sent(ob: Obligations) -> tuple[str, ...]:
    """Surfaces that may serve a consumer: the value, and tokens where those are all it observes."""
    if ob.projected is None or ob.surface.keeps_value:
        return (VALUE,)
    return (VALUE, ob.projected.output)


def lineage_of(ob: Obligations, consumer: str) -> frozenset[str]:
    """Producers whose value, sent on as it is, the consumer may observe (§3.3)."""
    if ob.owners is not None:
        return ob.owners
    return ob.reduced or ob.members(ob.mapped[consumer])


def remote_lanes(ob: Obligations) -> dict[str, list[str]]:
    """Per domain that may materialize, its demanded consumers whose mapped producer is elsewhere.

    Reassembly is the layout's to authorize, and only where no lineage or authority says more.
    """
    lanes: dict[str, list[str]] = {}
    if ob.replicate and ob.owners is None and not ob.class_of:
        for c in ob.demanded:
            if ob.domain_of[ob.mapped[c]] != ob.domain_of[c]:
                lanes.setdefault(ob.domain_of[c], []).append(c)
    return {d: lanes[d] for d in stable_order(list(lanes)) if len(lanes[d]) > 1}


def materialize(ob: Obligations, lanes: list[str]) -> tuple[AnyOp, ...]:
    """Slice j of m from the mapped producer of lane j, and the all_gather: m + 1 ops, one step."""
    slices = [
        Send(src=ob.mapped[c], dst=c, part=Part(index=j, of=len(lanes)))
        for j, c in enumerate(lanes)
    ]
    return (*slices, AllGather(members=tuple(lanes)))
