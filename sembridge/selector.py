"""The fabric-aware selector (§8.2, equation 7): which of the legal plans this fabric favours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from sembridge.check import Report
from sembridge.errors import BadInput, PlanRejected
from sembridge.footprint import Footprint
from sembridge.lowering import LADDER, REFERENCE, SEMANTIC, Policy, lower_valid
from sembridge.obligations import Obligations
from sembridge.plan import Plan, Project

Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class LocalCost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What L is made of: seconds per projection, per native collective, and their byte rate."""

    projection_s: Seconds = 0.0
    collective_s: Seconds = 0.0
    bytes_per_s: Annotated[float, Meta(gt=0, le=1e18)] | None = None


class Fabric(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.fabric/1",
    forbid_unknown_fields=True,
):
    """β in bytes/s end to end, α in seconds per frame, and the non-overlapped local cost L.

    ``plan_local_s`` states L outright for the plans it names; ``local`` models the others.
    """

    beta_bytes_per_s: Annotated[float, Meta(gt=0, le=1e18)]
    alpha_s: Seconds
    local: LocalCost = LocalCost()
    plan_local_s: dict[str, Seconds] = {}


class Candidate(Struct, frozen=True, kw_only=True):
    """A legal plan and the terms of equation 7 for it, in seconds."""

    name: str
    plan: Plan
    footprint: Footprint
    transfer_s: float
    startup_s: float
    local_s: float

    @property
    def total_s(self) -> float:
        """B/β + αF + L: s is better than r exactly when its total is smaller."""
        return self.transfer_s + self.startup_s + self.local_s


class Choice(Struct, frozen=True, kw_only=True):
    """The plan chosen, every candidate in order of cost, and the comparison in words."""

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    why: str


PROJECT_LATE = Policy(name="project-at-consumer", project_at_producer=False)

CANDIDATES: tuple[Policy, ...] = (SEMANTIC, PROJECT_LATE, LADDER[1], LADDER[2], REFERENCE)


def local_seconds(fabric: Fabric, name: str, footprint: Footprint, projections: int) -> float:
    """L of a plan: stated by the fabric, else projections and native collectives at its rates."""
    if name in fabric.plan_local_s:
        return fabric.plan_local_s[name]
    local = fabric.local
    moved = footprint.local_bytes / local.bytes_per_s if local.bytes_per_s else 0.0
    collectives = footprint.local_startups + footprint.reductions
    return projections * local.projection_s + collectives * local.collective_s + moved


def _candidate(fabric: Fabric, name: str, plan: Plan, report: Report) -> Candidate:
    footprint = report.footprint
    projections = sum(isinstance(op, Project) for op in plan.ops)
    return Candidate(
        name=name,
        plan=plan,
        footprint=footprint,
        transfer_s=footprint.cross_bytes / fabric.beta_bytes_per_s,
        startup_s=footprint.cross_startups * fabric.alpha_s,
        local_s=local_seconds(fabric, name, footprint, projections),
    )


def better(fabric: Fabric, s: Candidate, r: Candidate) -> bool:
    """Equation 7: ``(B_r − B_s)/β + α (F_r − F_s) > L_s − L_r``."""
    saved = (r.footprint.cross_bytes - s.footprint.cross_bytes) / fabric.beta_bytes_per_s
    saved += fabric.alpha_s * (r.footprint.cross_startups - s.footprint.cross_startups)
    return saved > s.local_s - r.local_s


def select(ob: Obligations, fabric: Fabric, policies: Iterable[Policy] = CANDIDATES) -> Choice:
    """Choose among the checker-accepted plans of several policies; the earlier one on a tie.

    Raises:
        BadInput: ``plan_local_s`` names a plan that is no candidate.
    """
    policies = tuple(policies)
    unknown = fabric.plan_local_s.keys() - {p.name for p in policies}
    if unknown:
        raise BadInput(f"no candidate plan {min(unknown)!r}", path="$.plan_local_s")
    candidates: list[Candidate] = []
    for policy in policies:
        try:
            plan, report = lower_valid(ob, policy)
        except PlanRejected:  # pragma: no cover - every policy's plans are accepted
            continue
        if all(plan.ops != other.plan.ops for other in candidates):
            candidates.append(_candidate(fabric, policy.name, plan, report))
    chosen = candidates[0]
    for candidate in candidates[1:]:
        if better(fabric, candidate, chosen):
            chosen = candidate
    ordered = tuple(sorted(candidates, key=lambda c: c.total_s))
    return Choice(chosen=chosen, candidates=ordered, why=_explain(chosen, ordered))


def _explain(chosen: Candidate, ordered: tuple[Candidate, ...]) -> str:
    def terms(c: Candidate) -> str:
        return (
            f"{c.name}: {c.transfer_s * 1e3:.4g} ms transfer + {c.startup_s * 1e3:.4g} ms startups"
            f" + {c.local_s * 1e3:.4g} ms local = {c.total_s * 1e3:.4g} ms"
        )

    others = [c for c in ordered if c is not chosen]
    lines = [f"chosen {terms(chosen)}"]
    lines += [f"  over {terms(c)}" for c in others]
    if not others:
        lines.append("  the only distinct legal plan")
    return "\n".join(lines)
