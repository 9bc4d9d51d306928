"""Mutation campaigns (§6.2): the eight targeted mutations, the byte-only proposals, everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from experiments.ledger import Check, paper
from experiments.matrix import OBLIGATIONS, matrix
from experiments.real_edges import contracts
from experiments.registry import Result, Settings, Table, experiment
from mutations.campaign import (
    KILLS,
    Class,
    Judged,
    Options,
    Record,
    judge_mutant,
    mutant_of,
    mutants_of,
    run,
    subject_named_in,
)
from mutations.operators import OPERATORS, PAPER_EIGHT
from mutations.report import (
    by_operator,
    checkers_noticed,
    necessary_rules,
    records_of,
    rule_matrix,
    summarize,
)
from mutations.subjects import Subject, family, reduced, subjects_of
from mutations.truth import prover_installed
from sembridge.contract import Contract
from sembridge.errors import BadInput

WHERE = "§6.2"
READING = (
    "The paper names six obligations and eight mutations, and not the mutations themselves: which "
    "eight they are is this kit's reading."
)


SOURCES: dict[str, Callable[[], Iterable[Contract]]] = {
    "matrix": lambda: [case.contract for case in matrix()],
    "edges": lambda: [reduced(contract) for contract in contracts().values()],
    "family": family,
}
"""Contracts to mutate, by source; to add a source, add one entry."""


@cache
def subjects(source: str) -> dict[str, Subject]:
    """The subjects of one source, by name."""
    return subjects_of(source, SOURCES[source]())


def subject_of(mutant_id: str) -> Subject:
    """The subject of a mutant's id.

    Raises:
        BadInput: there is none of that name.
    """
    name = subject_named_in(mutant_id)
    source = name.partition("/")[0]
    found = subjects(source).get(name) if source in SOURCES else None
    if found is None:
        raise BadInput(f"no subject {name!r}; names start with {', '.join(SOURCES)}")
    return found


def eight() -> dict[str, Record]:
    """The eight targeted mutations, judged."""
    found: dict[str, Record] = {}
    for name, mutant_id in PAPER_EIGHT.items():
        subject = subject_of(mutant_id)
        mutant = mutant_of(mutant_id, subject)
        found[name] = judge_mutant(subject, mutant, prove=prover_installed())
    return found


def byte_only_proposals() -> list[Record]:
    """The byte-only planner's proposals for the 72 cases, judged as mutants.

    A proposal that is the lowered plan itself changes nothing, and is not among them.
    """
    found: list[Record] = []
    for subject in subjects("matrix").values():
        if subject.name.endswith("/semantic"):
            for mutant in mutants_of(subject, ["byte-only"]):
                found.append(judge_mutant(subject, mutant, prove=prover_installed()))
    return found


@experiment("targeted", "The eight targeted mutations and the byte-only proposals (§6.2)")
def targeted(settings: Settings) -> Result:
    """Judge the paper's eight, and the byte-only planner's plans for the 72 cases."""
    eight_records, proposals = eight(), byte_only_proposals()
    rejected = Counter(_obligation(r) for r in proposals if r.rules)
    killed = Counter(_obligation(r) for r in proposals if r.outcome in KILLS)
    checks = [
        Check(
            name="targeted mutations rejected for their own rule, and wrong by other judges",
            where=WHERE,
            expected=len(PAPER_EIGHT),
            ours=sum(r.outcome is Class.KILLED for r in eight_records.values()),
        ),
        *(
            Check(
                name=f"byte-only proposals rejected, {obligation}, as in Table 2",
                where=WHERE,
                expected=paper(f"table2.{obligation}.byte_only_rejected"),
                ours=rejected[obligation],
            )
            for obligation in OBLIGATIONS
        ),
        Check(
            name="rejected byte-only proposals that judges other than the checker call wrong",
            where=WHERE,
            expected=rejected.total(),
            ours=killed.total(),
        ),
        Check(
            name="byte-only proposals accepted although another judge calls them wrong",
            where=WHERE,
            expected=0,
            ours=sum(r.outcome is Class.MISSED for r in proposals),
        ),
    ]
    return Result(
        name="targeted",
        how="each mutation judged by the checker, by execution on value-revealing arrays, by "
        "identity, by a tally of deliveries, and by the SMT model where it is installed",
        measured={
            "targeted_mutations_rejected": sum(bool(r.rules) for r in eight_records.values())
        },
        checks=tuple(checks),
        tables=(
            Table(
                title="The eight targeted mutations",
                columns=("mutation", "mutant", "class", "rules", "execution", "wrong"),
                rows=tuple(
                    (
                        name,
                        r.id,
                        str(r.outcome),
                        ", ".join(r.rules),
                        r.execution,
                        ", ".join(r.wrong),
                    )
                    for name, r in eight_records.items()
                ),
                note=READING,
            ),
            Table(
                title="The byte-only planner's proposals for the 72 cases",
                columns=("obligation", "rejected", "accepted", "the lowered plan itself", "rules"),
                rows=tuple(_proposals(o, proposals) for o in OBLIGATIONS),
            ),
        ),
        records=tuple(_flat(r) for r in proposals),
    )


def _obligation(record: Record) -> str:
    return record.id.split("/")[1].partition(".")[0]


def _proposals(obligation: str, proposals: Sequence[Record]) -> tuple[Any, ...]:
    own = [r for r in proposals if _obligation(r) == obligation]
    rules = Counter(rule for r in own for rule in r.rules)
    rejected = sum(bool(r.rules) for r in own)
    named = ", ".join(f"{n} {rule}" for rule, n in rules.items())
    return obligation, rejected, len(own) - rejected, 18 - len(own), named


def _flat(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "class": str(record.outcome),
        "rules": " ".join(record.rules),
        "execution": record.execution,
        "proof": record.proof,
        "wrong": " ".join(record.wrong),
        "why": record.why,
    }


def campaign(
    settings: Settings, name: str, sources: Sequence[str] = tuple(SOURCES), **options: Any
) -> list[Judged]:
    """A campaign over some sources, of order one unless ``options`` say otherwise.

    ``name`` tells its journal from those of other campaigns.
    """
    tick = settings.progress
    return run(
        [s for source in sources for s in subjects(source).values()],
        Options(seed=settings.seed, prove=prover_installed(), **options),
        jobs=None if settings.jobs < 1 else settings.jobs,
        journal=settings.journal(f"mutations-{name}"),
        progress=tick and (lambda done, of: tick(done, of, "mutated subjects")),
    )


@experiment(
    "mutations", "Mutation campaigns of order one and two, and checker mutants", quick=False
)
def mutations(settings: Settings) -> Result:
    """Every operator over the 72 cases, the 13 edges and the family; then pairs of operators."""
    parts = {source: campaign(settings, source, (source,)) for source in SOURCES}
    everything = [one for judged in parts.values() for one in judged]
    parts["all"] = everything
    limit = 100 if settings.full else 10
    parts["order 2, drawn"] = campaign(settings, "order-2", order=2, limit=limit, checkers=False)
    records = records_of(everything)
    summaries = {name: summarize(judged) for name, judged in parts.items()}
    noticed = checkers_noticed(records)
    cover = necessary_rules(records)
    checks: list[Check] = []
    for name, s in summaries.items():
        checks += [
            Check(name=f"{name}: missed", expected=0, ours=s.classes[Class.MISSED]),
            Check(
                name=f"{name}: overstrict without a stated reason", expected=0, ours=s.unexplained
            ),
            Check(name=f"{name}: errors", expected=0, ours=s.classes[Class.ERROR]),
            Check(
                name=f"{name}: mutants on which execution and proof disagree",
                expected=0,
                ours=s.disagreements,
            ),
            Check(
                name=f"{name}: judges that an unmutated plan fails", expected=0, ours=len(s.insane)
            ),
            Check(
                name=f"{name}: planted judges noticed",
                expected=len(s.planted),
                ours=sum(s.planted.values()),
            ),
        ]
    if prover_installed():
        overstrict = [r for r in records if r.outcome is Class.OVERSTRICT]
        checks.append(
            Check(
                name="all: overstrict mutants that the proof refuses as well",
                expected=len(overstrict),
                ours=sum(r.proof == "illegal" for r in overstrict),
            )
        )
    checks.append(
        Check(
            name="weakened checkers neither noticed nor proved redundant",
            expected=0,
            ours=sum(n.standing == "untested" for n in noticed),
        )
    )
    return Result(
        name="mutations",
        how="plans and contracts mutated by every operator; each mutant judged by execution, "
        "identity, a tally of deliveries, and the SMT model where it is installed; the checker is "
        "what is tested. Real edges are mutated over 24 columns: legality does not depend on the "
        "payload's size",
        checks=tuple(checks),
        tables=(
            Table(
                title="Classes",
                columns=("campaign", "subjects", "mutants", *Class, "score"),
                rows=tuple(
                    (name, s.subjects, s.mutants, *s.classes.values(), s.score)
                    for name, s in summaries.items()
                ),
            ),
            Table(
                title="Rejected though every observation is right, by the stated condition",
                columns=("mutants", "condition"),
                rows=tuple(
                    (n, why)
                    for why, n in sorted(
                        Counter(r.why for r in records if r.outcome is Class.OVERSTRICT).items()
                    )
                ),
                note="An op's condition holds where it runs, whether or not anybody observes it.",
            ),
            Table(
                title="Weakened checkers",
                columns=("checker", "what is weakened", "missed", "stated", "example", "standing"),
                rows=tuple(msgspec.structs.astuple(n) for n in noticed),
                note="missed: wrong mutants that it accepts; stated: mutants that are right in "
                "every observation, and forbidden by a stated condition. A redundant one has its "
                "proof in the place of an example.",
            ),
            Table(
                title=f"The smallest set of rules that kills everything: {len(cover)}",
                columns=("rule",),
                rows=tuple((rule,) for rule in cover),
            ),
            Table(
                title=f"The {len(OPERATORS)} operators",
                columns=("operator", "on", "what it does", "mutants", *Class),
                rows=tuple(by_operator(records)),
            ),
        ),
        records=tuple(_kills(records)),
    )


def _kills(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """For each operator its mutants by class, and how many each rule refuses."""
    matrix = rule_matrix(records)
    refused = dict(zip(matrix.rows, matrix.cells, strict=True))
    for name, on, _, mutants, *counts in by_operator(records):
        yield {
            "operator": name,
            "on": on,
            "expects": " ".join(OPERATORS[name].expects),
            "mutants": mutants,
            **dict(zip(Class, counts, strict=True)),
            "refused_by": dict(zip(matrix.columns, refused[name], strict=True)),
        }
