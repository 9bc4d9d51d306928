"""The independent certificate check: shares plan and obligations with the kit, and no more.

That a plan is legal is the checker's to say; this says that nothing cheaper is. Why each bound
holds, where those before it are met, is in docs/explanation/oracle.md."""

from __future__ import annotations

from collections import Counter

from oracle.certificate import EVERY_PLAN, FAMILY, Certificate, Six, digest
from sembridge.layout import slice_bounds
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, AllGather, Broadcast, Plan, Reduce, Send


def verify(ob: Obligations, plan: Plan, certificate: Certificate) -> list[str]:
    """Why the certificate does not prove the plan minimal; empty where it does."""
    reasons = ["no bound is known"] if ob.completes != VALUE or ob.informs else list[str]()
    if (certificate.contract, certificate.plan) != (ob.contract.name, digest(plan)):
        reasons.append("made for another contract or plan")
    if certificate.footprint != (found := recomputed(ob, plan)):
        reasons.append(f"the plan's footprint is {found}")
    scope, bound = lower_bound(ob, certificate)
    if scope != certificate.scope:
        reasons.append(f"the bound holds for {scope}")
    return reasons if bound == certificate.footprint else [*reasons, f"the bound is {bound}"]


def recomputed(ob: Obligations, plan: Plan) -> Six:
    """Equation 5 from the ops; ``had`` are the bytes of endpoints that were sent slices."""
    had, t = dict[tuple[str, str], int](), Counter[str]()
    for op in plan.ops:
        surface = getattr(op, "surface", VALUE)
        size = ob.sizes.get(surface, 0)
        t["ops"] += 1
        if isinstance(op, Send):
            if op.part and ob.elements:
                start, stop = slice_bounds(ob.elements, op.part.index, op.part.of)
                size = (stop - start) * (size // ob.elements)
                had[op.dst, surface] = had.get((op.dst, surface), 0) + size
            t.update(cross=size, sends=1)
        elif isinstance(op, Broadcast):
            if (op.src, surface) in had:
                size = min(size, had[op.src, surface])
                had |= {(x, surface): size for x in op.dsts}
            t.update(local=size * len(op.dsts), natives=1)
        elif isinstance(op, AllGather):
            lacks = [size - min(size, had.pop((x, surface), size)) for x in op.members]
            t.update(local=sum(lacks), natives=1)
        elif isinstance(op, Reduce):
            t.update(local=(len(op.sources) - 1) * size, reductions=1)
    return t["cross"], t["sends"], t["local"], t["natives"], t["reductions"], t["ops"]


def lower_bound(ob: Obligations, c: Certificate) -> tuple[str, Six | None]:
    """The scope and the bound that the listed endpoints force; None where one forces nothing."""
    decided = ob.owners or ob.reduced
    kind = {x: (ob.domain_of[x], decided or ob.members(ob.mapped[x])) for x in ob.demanded}
    homes = {(ob.domain_of[p], p) for p in ob.producers}
    home = {k: any((k[0], p) in homes for p in k[1]) for k in set(kind.values())}
    n, value = len(kind), ob.value_bytes
    tokens = ob.sizes[ob.projected.output] if ob.projected else value
    early = ob.projected is not None and not ob.surface.keeps_value and tokens <= value
    each = tokens if early else value
    reductions, reduced = int(ob.reduced is not None), (len(ob.reduced or "_") - 1) * value
    if not {*c.crossing, *c.projecting, *[x for xs in c.local for x in xs]} <= kind.keys():
        return FAMILY, None

    def one_op(xs: tuple[str, ...]) -> bool:  # one at home, or two of a kind that one send serves
        alike = len({kind[x] for x in xs}) == 1 and len({*xs}) == len(xs)
        return alike and len(xs) == (1 if home[kind[xs[0]]] else 2)

    crossing = {kind[x] for x in c.crossing if not home[kind[x]]}
    local = {kind[xs[0]] for xs in c.local if one_op(xs)}
    own = {kind[x] if home[kind[x]] else kind[x][1] for x in c.projecting}
    own -= {k[1] for k in own if k in home}  # a lineage projected at home needs no other
    sizes = (len(c.crossing), len(c.local), len(c.projecting))
    if (len(crossing), len(local), len(own)) != sizes or (c.projecting and not early):
        return FAMILY, None
    sends, native, projections = sizes if early else (*sizes[:2], n if ob.projected else 0)
    ops = sends + native + reductions + projections
    bound = (each * sends, sends, each * (n - sends) + reduced, native, reductions, ops)

    free = ob.replicate and ob.owners is None
    remote = [k for k in kind.values() if free and not ob.class_of and not home[k]]
    lanes, sources = Counter(d for d, _ in remote), Counter(d for d, _ in set(remote))
    if mixed := [d for d in sources if sources[d] > 1]:
        size = Counter(d for d, _ in kind.values())
        m, alone = min(lanes[d] for d in mixed), sum(d not in lanes for d, _ in home)
        beside = all(size[d] > m for d in mixed if lanes[d] == m)
        sends = m + len(lanes) - 1
        native = sum(size[d] > 1 for d in lanes) + beside + alone
        projections = m + alone if early else n if ob.projected else 0
        cross = value + each * (len(lanes) - 1)
        delivered = (m - 1) * value + each * (n - sends)
        bound = min(bound, (cross, sends, delivered, native, 0, sends + native + projections))
    several = any(len(lineage) < len(ob.producers) for _, lineage in home)
    family = (free and several) or (reductions and any(home.values()))
    return FAMILY if family else EVERY_PLAN, bound
