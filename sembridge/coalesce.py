"""Graph-level costing (§4.4): payloads that share their transport leave as one startup.

Packing changes what startups cost and nothing else: every constituent plan is checked against
its own contract first, and an illegal one is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sembridge.check import CHECKER
from sembridge.contract import Contract
from sembridge.errors import PlanRejected
from sembridge.footprint import Footprint, part_bytes
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import AllGather, AnyOp, Broadcast, Plan, Project, Reduce, Send
from sembridge.verdict import Verdict

PackKey = tuple[str, str, tuple[str, ...], tuple[str, ...], bool]
"""(transport group, op kind, source set, destination set, crosses domains)."""


class Packed(Struct, frozen=True, kw_only=True):
    """Payloads of several edges that leave together."""

    group: str
    kind: str
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    crosses: bool
    constituents: tuple[tuple[str, int], ...]
    """(contract, op index) of each payload."""
    payload_bytes: int


class GraphCost(Struct, frozen=True, kw_only=True):
    """Startups of a set of edges, packed and not; legality was decided edge by edge."""

    footprints: dict[str, Footprint]
    packed: tuple[Packed, ...]
    cross_startups: int
    local_startups: int


def _key(ob: Obligations, op: AnyOp) -> PackKey | None:
    group = ob.contract.framing_group or ob.contract.name
    match op:
        case Send():
            return group, "send", (op.src,), (op.dst,), True
        case Broadcast():
            return group, "broadcast", (op.src,), tuple(sorted(op.dsts)), False
        case AllGather():
            members = tuple(sorted(op.members))
            return group, "all_gather", members, members, False
        case Reduce():
            sources, targets = tuple(sorted(op.sources)), tuple(sorted(op.targets))
            return group, f"reduce {op.operator}", sources, targets, False
        case Project():
            return None


def graph_cost(edges: Sequence[tuple[Contract, Plan]]) -> GraphCost:
    """Cost a set of edges with equal payload groups packed.

    A group takes part once for each time it occurs in the edge that uses it most, so two equal
    sends of one edge are never packed into one.

    Raises:
        ContractRejected, PlanRejected: a constituent edge is not legal by itself.
    """
    footprints: dict[str, Footprint] = {}
    groups: dict[tuple[PackKey, int], list[tuple[str, int, int]]] = {}
    for contract, plan in edges:
        ob = resolve_valid(contract)
        report = CHECKER.check_valid(ob, plan)
        if report.verdict is not Verdict.LEGAL:
            raise PlanRejected(contract.name, report.violations)
        footprints[contract.name] = report.footprint
        seen: dict[PackKey, int] = {}
        for index, op in enumerate(plan.ops):
            key = _key(ob, op)
            if key is None:
                continue
            occurrence = seen[key] = seen.get(key, -1) + 1
            size = (
                part_bytes(ob, op.surface, op.part)
                if isinstance(op, Send)
                else ob.sizes.get(getattr(op, "surface", "value"), 0)
            )
            groups.setdefault((key, occurrence), []).append((contract.name, index, size))
    packed = tuple(
        Packed(
            group=key[0],
            kind=key[1],
            sources=key[2],
            destinations=key[3],
            crosses=key[4],
            constituents=tuple((name, index) for name, index, _ in parts),
            payload_bytes=sum(size for *_, size in parts),
        )
        for (key, _), parts in groups.items()
    )
    return GraphCost(
        footprints=footprints,
        packed=packed,
        cross_startups=sum(p.crosses for p in packed),
        local_startups=sum(not p.crosses and not p.kind.startswith("reduce") for p in packed),
    )
