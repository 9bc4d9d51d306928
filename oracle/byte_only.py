"""The byte-only minimizer (§4.2): fewest remote bytes, whatever the consumers observe.

The first producer sends its value to the first demanded consumer of each domain, and a native
broadcast serves the rest there. It never reduces, never projects, and never asks who owns what:
a supplier of counterexamples.
"""

from __future__ import annotations

from sembridge.obligations import Obligations
from sembridge.plan import AnyOp, Broadcast, Send


def plan_bytes(ob: Obligations) -> tuple[AnyOp, ...]:
    """One copy of the first producer's value for each domain that has a demanded consumer."""
    first = ob.producers[0]
    by_domain: dict[str, list[str]] = {}
    for c in ob.demanded:
        by_domain.setdefault(ob.domain_of[c], []).append(c)
    ops: list[AnyOp] = []
    for domain, consumers in by_domain.items():
        root, rest = first, consumers
        if domain != ob.domain_of[first]:
            root, rest = consumers[0], consumers[1:]
            ops.append(Send(src=first, dst=root))
        if rest:
            ops.append(Broadcast(src=root, dsts=tuple(rest)))
    return tuple(ops)
