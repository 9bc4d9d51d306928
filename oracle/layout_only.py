"""The independent Layout-Only baseline (§4.2): shapes, dtypes, meshes, domains and placements.

It imports the layout types and the plan's ops, and nothing of demand, surface, authority,
lifetime, checker or cost model. It serves every consumer, since a layout knows no demand. The
rule for sizes that do not divide is calibrated to the published counts; the alternatives beside
it are other honest readings of layout redistribution.
"""

from __future__ import annotations

from collections.abc import Callable

from sembridge.layout import Lane, Layout, Partial, Shard, elements_of
from sembridge.plan import AllGather, AnyOp, Broadcast, Part, Reduce, Send

Group = tuple[Lane, ...]
Redistribution = Callable[[Layout, Group], list[AnyOp]]
"""How one consumer domain's lanes get a replicated value from replicated producers."""


def _copy(layout: Layout, src: str, dst: Lane) -> AnyOp:
    """The whole value to one lane; inside one domain that is a native broadcast."""
    home = {p.id: p.domain for p in layout.producers}[src]
    if home == dst.domain:
        return Broadcast(src=src, dsts=(dst.id,))
    return Send(src=src, dst=dst.id)


def _remote(layout: Layout, lanes: Group) -> bool:
    homes = {p.domain for p in layout.producers}
    return all(lane.domain not in homes for lane in lanes)


def mapped_copies(layout: Layout, lanes: Group) -> list[AnyOp]:
    """Each lane takes the whole from its own producer."""
    return [_copy(layout, lane.source, lane) for lane in lanes]


def slices_and_gather(layout: Layout, lanes: Group) -> list[AnyOp]:
    """m flat slices to the m lanes from their own producers, and an all_gather inside."""
    if len(lanes) == 1 or not _remote(layout, lanes):
        return mapped_copies(layout, lanes)
    sends: list[AnyOp] = [
        Send(src=lane.source, dst=lane.id, part=Part(index=i, of=len(lanes)))
        for i, lane in enumerate(lanes)
    ]
    return [*sends, AllGather(members=tuple(lane.id for lane in lanes))]


def slices_to_each(layout: Layout, lanes: Group) -> list[AnyOp]:
    """Each lane takes the whole as min(TP, elements) slices, slice i from producer i."""
    of = min(len(layout.producers), elements_of(layout.shape))
    if of < 2 or not _remote(layout, lanes):
        return mapped_copies(layout, lanes)
    return [
        Send(src=producer.id, dst=lane.id, part=Part(index=i, of=of))
        for lane in lanes
        for i, producer in enumerate(layout.producers[:of])
    ]


def calibrated(layout: Layout, lanes: Group) -> list[AnyOp]:
    """Slices and all_gather where TP divides the element count, else slices to each lane."""
    if elements_of(layout.shape) % len(layout.producers) == 0:
        return slices_and_gather(layout, lanes)
    return slices_to_each(layout, lanes)


def alpa_send_recv(layout: Layout, lanes: Group) -> list[AnyOp]:
    """Alpa's send/recv cross-mesh strategy: each lane receives its copy, producers taking turns."""
    return [
        _copy(layout, layout.producers[i % len(layout.producers)].id, lane)
        for i, lane in enumerate(lanes)
    ]


def alpa_broadcast(layout: Layout, lanes: Group) -> list[AnyOp]:
    """Alpa's broadcast strategy: one copy into the mesh, a native broadcast inside it."""
    if not _remote(layout, lanes):
        return mapped_copies(layout, lanes)
    first, rest = lanes[0], lanes[1:]
    ops: list[AnyOp] = [Send(src=first.source, dst=first.id)]
    if rest:
        ops.append(Broadcast(src=first.id, dsts=tuple(lane.id for lane in rest)))
    return ops


REDISTRIBUTIONS: dict[str, Redistribution] = {
    "calibrated": calibrated,
    "mapped-copies": mapped_copies,
    "slices-and-gather": slices_and_gather,
    "slices-to-each": slices_to_each,
    "alpa-send-recv": alpa_send_recv,
    "alpa-broadcast": alpa_broadcast,
}


def plan_layout(layout: Layout, redistribute: Redistribution = calibrated) -> tuple[AnyOp, ...]:
    """Redistribute the whole value from the producers' mesh to every consumer's lane.

    shard to shard: each lane's producer sends to its lane. partial to replicate: a native
    all-reduce at the producers, then as replicate to replicate, domain by domain.
    """
    if isinstance(layout.placement, Shard):
        return tuple(mapped_copies(layout, layout.consumers))
    ops: list[AnyOp] = []
    if isinstance(layout.placement, Partial):
        ids = tuple(p.id for p in layout.producers)
        ops.append(Reduce(operator=layout.placement.op, sources=ids, targets=ids))
    by_domain: dict[str, list[Lane]] = {}
    for lane in layout.consumers:
        by_domain.setdefault(lane.domain, []).append(lane)
    for lanes in by_domain.values():
        ops += redistribute(layout, tuple(lanes))
    return tuple(ops)
