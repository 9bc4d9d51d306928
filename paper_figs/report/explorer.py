"""What the explorer shows: every planner's plan for a case, judged, step by step.

Everything is computed here, by the checker and the executable reference; the page only shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from experiments.matrix import PLANNERS
from experiments.mutations import SOURCES
from experiments.real_edges import contracts
from mutations.campaign import mutants_of
from mutations.operators import OPERATORS, PAPER_EIGHT
from mutations.report import diff
from mutations.subjects import Subject
from oracle.smt.witness import Shows, find_witness
from sembridge import io
from sembridge.check import CHECKER, check
from sembridge.contract import Contract
from sembridge.draw import MAX_DRAWN, describe, draw_text
from sembridge.errors import BadInput, ContractRejected
from sembridge.explain import explain
from sembridge.layout import stable_order
from sembridge.obligations import Obligations, resolve, validate
from sembridge.plan import Plan
from sembridge.rules import identify
from sembridge.state import Holding, State
from sembridge.verdict import Verdict, Violation

MAX_SHOWN = 64
"""Most elements of a counterexample's values that the page carries."""

TARGETED: dict[str, tuple[str, int]] = {
    example.rsplit(":", 2)[1]: (name, int(example.rsplit(":", 1)[1]))
    for name, example in PAPER_EIGHT.items()
}
"""The eight targeted mutations: operator to name, and which of its mutants stands for it."""

Progress = Callable[[int, int, str], None]


class Held(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One holding; ``spans`` are runs of elements, None is the whole."""

    endpoint: str
    surface: str
    spans: tuple[tuple[int, int], ...] | None = None
    complete: bool = True
    sources: tuple[str, ...] = ()
    issuers: tuple[str, ...] = ()


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of the checker: the holdings that it changed, and what it found wrong."""

    held: tuple[Held, ...] = ()
    violations: tuple[Violation, ...] = ()


class Counterexample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A shrunk witness: its contract and plan as text, the producers' tensors, what a run shows.

    Values are at most ``MAX_SHOWN`` elements of ``elements``.
    """

    drawn: str
    elements: int
    tensors: dict[str, tuple[int, ...]]
    shows: Shows


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A plan judged. ``steps`` are the start, each op, and the observation at the end.

    A rejected contract has no steps, and no plan where a planner refused it.
    """

    verdict: Verdict
    plan: Plan | None = None
    texts: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    footprint: tuple[int, ...] = ()
    violations: tuple[Violation, ...] = ()
    counterexample: Counterexample | None = None


class Mutated(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A targeted mutation of the semantic plan or of its contract, judged.

    ``key`` names it among the case's plans, ``id`` replays it (``mutate --show``).
    """

    key: str
    id: str
    name: str
    says: str
    diff: str
    contract: Contract | None = None
    run: Run


class Case(Struct, frozen=True, kw_only=True):
    """A contract, why it gets its plan, every planner's plan for it, and mutants."""

    name: str
    group: str
    contract: Contract
    why: tuple[str, ...]
    runs: dict[str, Run]
    mutants: tuple[Mutated, ...]


class Given(Struct, frozen=True, kw_only=True):
    """A contract from a file, and a plan for it where there is one."""

    contract: Contract
    plan: Plan | None = None


def read_case(folder: Path) -> Given:
    """``contract.json`` of a folder, and ``plan.json`` where there is one.

    Raises:
        BadInput: a file is not what its name says, or is too large to be shown.
    """
    plan = folder / "plan.json"
    given = Given(
        contract=io.read_contract(folder / "contract.json"),
        plan=io.read_plan(plan) if plan.exists() else None,
    )
    try:
        _bounded(given)
    except BadInput as error:
        raise error.within(str(folder)) from None
    return given


def cases(given: Iterable[Given] = (), progress: Progress | None = None) -> list[Case]:
    """The 72 cases, the 13 real edges, and what is given.

    Raises:
        BadInput: a given contract or plan is too large to be shown, or refers to what is not
            there.
    """
    grouped = [
        *(("matrix", Given(contract=c)) for c in SOURCES["matrix"]()),
        *(("edges", Given(contract=c)) for c in contracts().values()),
        *(("given", one) for one in given),
    ]
    found: list[Case] = []
    for i, (group, one) in enumerate(grouped):
        if progress:
            progress(i, len(grouped), one.contract.name)
        found.append(case_of(group, one))
    return found


def case_of(group: str, given: Given) -> Case:
    """Run every planner, and the targeted mutations that apply, on one contract."""
    contract = given.contract
    _bounded(given)
    runs = {name: _planned(contract, planner) for name, planner in PLANNERS.items()}
    if given.plan is not None:
        runs = {"given": run_of(contract, given.plan), **runs}
    return Case(
        name=contract.name,
        group=group,
        contract=contract,
        why=explain(contract).sentences,
        runs=runs,
        mutants=tuple(_mutated(group, contract, runs["semantic"])),
    )


def _bounded(given: Given) -> None:
    endpoints = len(given.contract.producers) + len(given.contract.consumers)
    if max(endpoints, len(given.plan.ops) if given.plan else 0) > MAX_DRAWN:
        raise BadInput(f"more than {MAX_DRAWN} endpoints or ops to show")


def _planned(contract: Contract, planner: Callable[[Contract], Plan]) -> Run:
    try:
        return run_of(contract, planner(contract))
    except ContractRejected as error:
        return Run(verdict=Verdict.ILLEGAL, violations=error.violations)


def run_of(contract: Contract, plan: Plan) -> Run:
    """Judge a plan, step through the checker, and find a counterexample where it is illegal.

    Raises:
        BadInput: the contract refers to what is not there.
    """
    ob, report = resolve(contract), check(contract, plan)
    return Run(
        verdict=report.verdict,
        plan=plan,
        texts=tuple(describe(ob, op) for op in plan.ops),
        steps=() if validate(ob) else tuple(steps(ob, plan)),
        footprint=tuple(report.footprint),
        violations=report.violations,
        counterexample=None if report.verdict is Verdict.LEGAL else _counterexample(contract, plan),
    )


def steps(ob: Obligations, plan: Plan) -> Iterator[Step]:
    """The checker's own steps: the start, each op, and what the demanded consumers observe."""
    state, before = CHECKER.start(ob), dict[tuple[str, str], Held]()

    def taken() -> Step:
        nonlocal before
        now, violations = holdings(state), tuple(state.found)
        changed = tuple(held for key, held in now.items() if before.get(key) != held)
        before = now
        state.found.clear()
        return Step(held=changed, violations=violations)

    identify(state, plan)
    yield taken()
    for state.op, op in enumerate(plan.ops):
        CHECKER.step(state, op)
        yield taken()
    state.op = None
    CHECKER.observe(state)
    yield taken()


def holdings(state: State) -> dict[tuple[str, str], Held]:
    """Who holds what, by endpoint and surface; the state is left as it is."""
    seen = state.fork()
    for producer in seen.ob.producers:
        if producer not in seen.values:
            seen.own(seen.values, producer)
    return {
        (endpoint, surface): _held(endpoint, surface, holding)
        for surface, copies in seen.held.items()
        for endpoint, holding in copies.items()
    }


def _held(endpoint: str, surface: str, holding: Holding) -> Held:
    return Held(
        endpoint=endpoint,
        surface=surface,
        spans=None if holding.whole else tuple(holding.pieces),
        complete=holding.complete,
        sources=tuple(stable_order([*holding.sources])),
        issuers=tuple(stable_order([*holding.issuers])),
    )


def _counterexample(contract: Contract, plan: Plan) -> Counterexample | None:
    witness = find_witness(contract, plan)
    if witness is None:
        return None
    shows = witness.shows
    return Counterexample(
        drawn=draw_text(witness.contract, witness.plan),
        elements=resolve(witness.contract).elements,
        tensors={name: values[:MAX_SHOWN] for name, values in witness.tensors.items()},
        shows=Shows(
            kind=shows.kind,
            rule=shows.rule,
            op=shows.op,
            endpoint=shows.endpoint,
            surface=shows.surface,
            observed=shows.observed and shows.observed[:MAX_SHOWN],
            expected=shows.expected and shows.expected[:MAX_SHOWN],
            says=shows.says,
        ),
    )


def _mutated(group: str, contract: Contract, semantic: Run) -> Iterator[Mutated]:
    if semantic.plan is None or semantic.verdict is not Verdict.LEGAL:
        return
    subject = Subject(
        name=f"{group}/{contract.name}/semantic", contract=contract, plan=semantic.plan
    )
    for operator, (name, number) in TARGETED.items():
        made = list(mutants_of(subject, [operator]))
        if made:
            mutant = made[number if number < len(made) else 0]
            yield Mutated(
                key=f"mutant:{operator}",
                id=mutant.id,
                name=name,
                says=OPERATORS[operator].says,
                diff=diff(subject, mutant),
                contract=mutant.contract if mutant.contract != contract else None,
                run=run_of(mutant.contract, mutant.plan),
            )
