"""Agreement of the judges on the matrix, the real edges, small families, and random pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path

from experiments.ledger import Check
from experiments.matrix import PLANNERS, matrix
from experiments.real_edges import contracts
from experiments.registry import Result, Settings, Table, experiment
from oracle.judges import JUDGES, SANE, Agreement, compare
from oracle.samples import draw_pairs
from oracle.shrink import Pair
from sembridge import io
from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.lowering import POLICIES, lower
from sembridge.plan import AnyOp, Broadcast, Plan, Reduce, Send

RANDOM, RANDOM_FULL = 1_000, 10_000
FAMILY_LENGTH = 2


def planned(contract: Contract) -> Iterator[Pair]:
    """What each planner and each lowering policy makes of a contract, legal or not."""
    for plan_for in PLANNERS.values():
        yield contract, plan_for(contract)
    for policy in POLICIES.values():
        yield contract, lower(contract, policy)


def matrix_pairs() -> Iterator[Pair]:
    """The 72 cases under every planner and policy."""
    for case in matrix():
        yield from planned(case.contract)


def edge_pairs() -> Iterator[Pair]:
    """The 13 real edges under every planner and policy."""
    for contract in contracts().values():
        yield from planned(contract)


def family_pairs(length: int = FAMILY_LENGTH) -> Iterator[Pair]:
    """Every sequence of up to ``length`` whole-value ops, for the matrix's contracts up to TP 2."""
    for case in matrix():
        if case.tp <= 2:
            ops = list(_family_ops(case.contract))
            for n in range(length + 1):
                for chosen in product(ops, repeat=n):
                    plan = Plan(contract=case.contract.name, tag=case.contract.tag, ops=chosen)
                    yield case.contract, plan


def _family_ops(contract: Contract) -> Iterator[AnyOp]:
    producers = tuple([p.id for p in contract.producers])
    consumers = tuple([c.id for c in contract.consumers])
    yield Reduce(operator="sum", sources=producers, targets=producers)
    for src in producers + consumers:
        for dst in consumers:
            yield Send(src=src, dst=dst)
        for n in range(1, len(consumers) + 1):
            for dsts in combinations(consumers, n):
                yield Broadcast(src=src, dsts=dsts)


def case_pairs(folder: Path) -> Iterator[Pair]:
    """Every folder below that holds ``contract.json`` and ``plan.json``.

    Raises:
        BadInput: there is none, or one cannot be read.
    """
    found = sorted(path.parent for path in folder.glob("**/contract.json"))
    if not found:
        raise BadInput("no contract.json below it", file=str(folder))
    for case in found:
        yield io.read_contract(case / "contract.json"), io.read_plan(case / "plan.json")


SOURCES: dict[str, Callable[[], Iterator[Pair]]] = {
    "matrix": matrix_pairs,
    "edges": edge_pairs,
    "family": family_pairs,
}
"""Named collections of pairs. To add one, add an entry."""

QUICK = ("matrix", "edges")


def opinion_rows(source: str, agreement: Agreement) -> list[tuple[object, ...]]:
    """One row for each combination of opinions that came up."""
    return [(source, *opinions, n) for opinions, n in agreement.opinions]


def sanity(pairs: Sequence[Pair]) -> dict[str, int]:
    """How many disagreements with the checker each wrong judge is caught at."""
    return {
        name: compare(pairs, ("checker", name), show=0).disagreements
        for name, judge in JUDGES.items()
        if not judge.sane
    }


@experiment("judges", "Checker, SMT model and executable reference agree (§3.6, §6.1)")
def judges(settings: Settings) -> Result:
    """Compare the judges' opinions on every source of pairs."""
    count = RANDOM_FULL if settings.full else RANDOM
    named = SOURCES if settings.full else QUICK
    sources: dict[str, Iterator[Pair]] = {name: SOURCES[name]() for name in named}
    sources[f"random {count}"] = draw_pairs(settings.seed, count)
    checks: list[Check] = []
    rows: list[tuple[object, ...]] = []
    for done, (name, pairs) in enumerate(sources.items()):
        if settings.progress:
            settings.progress(done, len(sources), name)
        found = compare(pairs)
        rows += opinion_rows(name, found)
        checks.append(
            Check(
                name=f"{name}: disagreements in {found.pairs} pairs",
                where="§3.6",
                ours=found.disagreements,
                expected=0,
            )
        )
    for name, caught in sanity(list(matrix_pairs())).items():
        checks.append(
            Check(
                name=f"{name} is caught on the matrix",
                where="§6.1",
                ours=caught > 0,
                expected=True,
                note=f"{caught} disagreements with the checker",
            )
        )
    return Result(
        name="judges",
        how="the same contracts and plans, legal and broken, before judges that share the IR only",
        checks=tuple(checks),
        tables=(
            Table(
                title="Opinions",
                columns=("pairs from", *SANE, "count"),
                rows=tuple(rows),
                note="An illegal plan may well deliver equal values: it delivers twice, say.",
            ),
        ),
    )
