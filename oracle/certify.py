"""Writing certificates: find the endpoints that force each component of a plan's footprint."""

from __future__ import annotations

from oracle.certificate import EVERY_PLAN, FAMILY, Certificate, digest
from oracle.program import lineage_of
from oracle.verify import verify
from sembridge.errors import SemBridgeError
from sembridge.footprint import footprint_of
from sembridge.obligations import Obligations
from sembridge.plan import Plan


class NotProven(SemBridgeError):
    """No certificate: the plan's footprint is above the bound that can be shown (exit 1)."""

    code = "not-proven"
    exit_code = 1


def certify(ob: Obligations, plan: Plan) -> Certificate:
    """A certificate that ``plan`` is lexicographically minimal, checked before it is returned.

    Linear in endpoints and ops. The plan must be one that the checker accepts.

    Raises:
        NotProven: what the bound is, and what the plan spends.
    """
    receivers: dict[tuple[str, frozenset[str]], list[str]] = {}
    for c in ob.demanded:
        receivers.setdefault((ob.domain_of[c], lineage_of(ob, c)), []).append(c)
    homes = {(ob.domain_of[p], p) for p in ob.producers}
    home = {
        kind: members
        for kind, members in receivers.items()
        if any((kind[0], p) in homes for p in kind[1])
    }
    crossing = {kind: members for kind, members in receivers.items() if kind not in home}
    projecting: list[str] = []
    tokens = ob.sizes[ob.projected.output] if ob.projected else 0
    if ob.projected and not ob.surface.keeps_value and tokens <= ob.value_bytes:
        at_home = {lineage for _, lineage in home}
        away = {kind[1]: members[0] for kind, members in crossing.items()}
        projecting = [members[0] for members in home.values()]
        projecting += [c for lineage, c in away.items() if lineage not in at_home]
    pairs = [(members[0], members[1]) for members in crossing.values() if len(members) > 1]
    certificate = Certificate(
        contract=ob.contract.name,
        plan=digest(plan),
        scope=scope_of(ob),
        footprint=tuple(footprint_of(ob, plan.ops)),  # pyright: ignore[reportArgumentType]
        crossing=tuple([members[0] for members in crossing.values()]),
        local=(*[(members[0],) for members in home.values()], *pairs),
        projecting=tuple(projecting),
    )
    reasons = verify(ob, plan, certificate)
    if reasons:
        spent = "the plan spends " + str(certificate.footprint)
        raise NotProven("; ".join([f"{ob.contract.name!r} is not proven minimal", spent, *reasons]))
    return certificate


def scope_of(ob: Obligations) -> str:
    """Among which plans the bound holds.

    Outside the family a replicate placement may be reassembled from any producers' slices, and a
    reduction may deliver to consumers of its own domain; where neither is possible the bound
    holds for every legal plan.
    """
    if ob.reduced is not None:
        native = {ob.domain_of[p] for p in ob.reduced}
        return FAMILY if any(ob.domain_of[c] in native for c in ob.demanded) else EVERY_PLAN
    if not ob.replicate or ob.owners is not None:
        return EVERY_PLAN
    everyone = all(len(lineage_of(ob, c)) == len(ob.producers) for c in ob.demanded)
    return EVERY_PLAN if everyone else FAMILY
