"""The capability ladder (§4.2): what demand, multicast and substitution each save."""

from __future__ import annotations

from experiments.ledger import Check
from experiments.matrix import OBLIGATIONS, matrix
from experiments.real_edges import contracts
from experiments.registry import Result, Settings, Table, experiment
from sembridge.check import check
from sembridge.contract import Contract
from sembridge.footprint import Footprint
from sembridge.lowering import LADDER, REFERENCE, SEMANTIC, lower

RUNGS = (*LADDER, SEMANTIC, REFERENCE)


def _sum(group: list[Contract]) -> list[tuple[int, int]]:
    """Cross-domain bytes and startups of a group of edges, rung by rung."""
    totals: list[tuple[int, int]] = []
    for policy in RUNGS:
        found = [check(contract, lower(contract, policy)).footprint for contract in group]
        totals.append((sum(f.cross_bytes for f in found), sum(f.cross_startups for f in found)))
    return totals


def _falls(contract: Contract) -> bool:
    steps: list[Footprint] = [
        check(contract, lower(contract, p)).footprint for p in (*LADDER, SEMANTIC)
    ]
    return steps == sorted(steps, reverse=True)


@experiment("ladder", "Demand pruning, domain-local multicast, replica substitution, one by one")
def ladder(settings: Settings) -> Result:
    """Sum cross-domain bytes and startups over the matrix and the real edges at each rung."""
    groups: dict[str, list[Contract]] = {o: [] for o in OBLIGATIONS}
    for case in matrix():
        groups[case.obligation].append(case.contract)
    groups["real edges"] = list(contracts().values())
    everything = [c for group in groups.values() for c in group]
    table = Table(
        title="Cross-domain bytes / startups, summed, with capabilities switched on one by one",
        columns=("edges", *(p.name for p in RUNGS)),
        rows=tuple(
            (name, *(f"{b} / {n}" for b, n in _sum(group))) for name, group in groups.items()
        ),
        note="`semantic` adds slices where they are cheaper; `reference` is the conservative plan.",
    )
    return Result(
        name="ladder",
        how="plans lowered with the capabilities of each rung, all accepted by the checker",
        checks=(
            Check(
                name="edges on which no rung costs more than the one below",
                where="§4.2",
                ours=sum(_falls(c) for c in everything),
                expected=len(everything),
            ),
        ),
        tables=(table,),
    )
