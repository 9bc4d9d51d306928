"""Surveys of the bounded family: figures, lowered plan, certificate and execution, part by part."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from oracle.certificate import EVERY_PLAN
from oracle.certify import NotProven, certify
from oracle.enumerate import programs
from oracle.family import Cell, members
from oracle.optimum import figures
from oracle.program import BOUNDS, Bounds
from sembridge.lowering import lower_valid
from sembridge.obligations import Obligations, resolve_valid
from sembridge.reference import Outcome, execute_valid


class Task(Struct, frozen=True, kw_only=True):
    """One part of the family, and how much of it to execute.

    Of every ``execute``-th contract (0: of none) all accepted programs run, where there are no
    more than ``most``; with up to ``endpoints`` producers and demanded consumers together, all
    that the checker rejects run too.
    """

    cell: Cell
    bounds: Bounds = BOUNDS
    execute: int = 0
    most: int = 300
    endpoints: int = 4

    @property
    def key(self) -> str:
        """What the task is, for a journal."""
        b = self.bounds
        sizes = f"{b.producers},{b.demanded},{b.domains}"
        return f"{sizes} {self.cell.key} execute {self.execute} of {self.most}"


class Survey(Struct, frozen=True, kw_only=True):
    """Sums over contracts. ``named`` counts are over all names, the others over orbits.

    ``not_optimal``, ``dominated``, ``unproven`` and ``wrong`` name contracts: the lowered plan is
    not the lexicographic optimum, is not on the Pareto frontier, is not certified minimal with
    the optimum's footprint; an accepted program differs from the reference.
    """

    contracts: int = 0
    named_contracts: int = 0
    sequences: int = 0
    programs: int = 0
    named_programs: int = 0
    minimal_among_every_plan: int = 0
    executed_contracts: int = 0
    executed_accepted: int = 0
    executed_rejected: int = 0
    rejected_that_differ: int = 0
    not_optimal: tuple[str, ...] = ()
    dominated: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def total(surveys: Iterable[Survey]) -> Survey:
    """Surveys put together, in their order."""
    sums = {name: type(getattr(Survey(), name))() for name in Survey.__struct_fields__}
    for survey in surveys:
        for name in sums:
            sums[name] += getattr(survey, name)
    return Survey(**sums)


def survey(task: Task) -> Survey:
    """Survey one part."""
    found: list[Survey] = []
    for index, (contract, orbit) in enumerate(members(task.cell, task.bounds)):
        ob = resolve_valid(contract)
        oracle = figures(ob)
        plan, report = lower_valid(ob)
        named = (contract.name,)
        optimal = report.footprint == oracle.optimum
        try:
            certificate = certify(ob, plan)
            proven, scope = certificate.footprint == tuple(oracle.optimum), certificate.scope
        except NotProven:
            proven, scope = False, ""
        found.append(
            Survey(
                contracts=1,
                named_contracts=orbit,
                sequences=oracle.sequences,
                programs=oracle.programs,
                named_programs=orbit * oracle.programs,
                minimal_among_every_plan=int(scope == EVERY_PLAN),
                not_optimal=() if optimal else named,
                dominated=() if report.footprint in oracle.pareto else named,
                unproven=() if proven else named,
            )
        )
        if task.execute and index % task.execute == 0 and oracle.programs <= task.most:
            few = len(ob.producers) + len(ob.demanded) <= task.endpoints
            found.append(_executed(ob, contract.name, rejected_too=few))
    return total(found)


def _executed(ob: Obligations, name: str, *, rejected_too: bool) -> Survey:
    accepted = rejected = differ = wrong = 0
    for program in programs(ob, rejected=rejected_too).values():
        outcome = execute_valid(ob, program.plan(ob), variants=1).outcome
        if program.accepted:
            accepted += 1
            wrong += outcome is not Outcome.EQUAL
        else:
            rejected += 1
            differ += outcome is not Outcome.EQUAL
    return Survey(
        executed_contracts=1,
        executed_accepted=accepted,
        executed_rejected=rejected,
        rejected_that_differ=differ,
        wrong=(name,) if wrong else (),
    )
