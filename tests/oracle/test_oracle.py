"""The oracle's two readings of the family agree, and the lowered plan is at its optimum."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.matrix import Case, matrix
from oracle.certify import certify
from oracle.enumerate import programs, sequences
from oracle.family import cells, members
from oracle.optimum import BudgetEnded, Figures, figures
from oracle.program import BOUNDS, Bounds, remote_lanes
from sembridge.check import CHECKER
from sembridge.contract import Consumer, Contract, Domain, Producer, Reduction
from sembridge.errors import BadInput
from sembridge.footprint import Footprint, footprint_of
from sembridge.lowering import lower_valid
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import Plan
from sembridge.reference import Outcome, execute_valid
from sembridge.verdict import Verdict
from tests.strategies import valid_contracts

LISTED = 1500
"""Sequences up to which a random contract is listed."""

replace = msgspec.structs.replace


def bounded(**bounds: int) -> st.SearchStrategy[Contract]:
    return valid_contracts(**({"producers": 4, "consumers": 4, "domains": 3} | bounds))


def listed(ob: Obligations) -> Figures:
    """The figures from the listing alone."""
    count, cheapest = 0, dict[int, Footprint]()
    for sequence in sequences(ob):
        count += 1
        cheapest.setdefault(sequence.program, footprint_of(ob, sequence.ops))
    points = set(cheapest.values())
    front = sorted(p for p in points if not any(q.dominates(p) for q in points))
    return Figures(sequences=count, programs=len(cheapest), pareto=tuple(front), states=0)


def agree(ob: Obligations) -> None:
    found = figures(ob)
    assert found._replace(states=0) == listed(ob)


@pytest.mark.parametrize("case", list(matrix()), ids=lambda case: case.id)
def test_listing_and_dynamic_program_agree_on_the_matrix(case: Case) -> None:
    agree(resolve_valid(case.contract))


@settings(max_examples=120)
@given(bounded())
def test_listing_and_dynamic_program_agree_on_random_contracts(contract: Contract) -> None:
    ob = resolve_valid(contract)
    assume(figures(ob).sequences <= LISTED)
    agree(ob)


def optimal_and_certified(contract: Contract) -> None:
    ob = resolve_valid(contract)
    plan, report = lower_valid(ob)
    found = figures(ob)
    assert report.footprint == found.optimum
    assert certify(ob, plan).footprint == tuple(found.optimum)


@given(bounded())
def test_lowered_plan_is_optimal_and_certified_on_random_contracts(contract: Contract) -> None:
    optimal_and_certified(contract)


def sampled(every: int) -> Iterator[Contract]:
    """The family's smaller parts, thinned out."""
    index, smaller = 0, Bounds(producers=3, demanded=3, domains=3)
    for cell in cells(smaller):
        for contract, _ in members(cell, smaller):
            index += 1
            if index % every == 0:
                yield contract


def test_lowered_plan_is_optimal_and_certified_on_the_family() -> None:
    checked = 0
    for contract in sampled(every=7):
        optimal_and_certified(contract)
        checked += 1
    assert checked > 500


def test_one_broadcast_serves_a_domain_that_an_assembled_whole_reaches() -> None:
    """The smallest contracts of the family on which serving them apart was not optimal."""
    beside = replicated(
        {"p0": "a", "p1": "a", "p2": "b"},
        {"c0": ("b", "p0"), "c1": ("b", "p1"), "c2": ("b", "p2")},
    )
    relayed = replicated(
        {"p0": "a", "p1": "b"},
        {"c0": ("a", "p0"), "c1": ("a", "p1"), "c2": ("c", "p0"), "c3": ("c", "p1")},
    )
    for contract in (beside, relayed):
        optimal_and_certified(contract)


def replicated(producers: dict[str, str], consumers: dict[str, tuple[str, str]]) -> Contract:
    """Tokens of three short rows, where two lanes' tokens weigh more than one sliced value."""
    cell = next(c for c in cells() if c.placement == "replicate" and c.payload == "tokens-narrow")
    model, _ = next(members(cell))
    domains = {*producers.values(), *(d for d, _ in consumers.values())}
    return replace(
        model,
        domains={d: Domain(stack="cuda") for d in sorted(domains)},
        producers=tuple(Producer(id=p, domain=d) for p, d in producers.items()),
        consumers=tuple(
            Consumer(id=c, domain=d, source=p, demanded=True) for c, (d, p) in consumers.items()
        ),
    )


# What does not change the figures --------------------------------------------------------------


def renamed(contract: Contract, seed: int) -> Contract:
    """The same contract under shuffled names, in shuffled order."""
    rng = random.Random(seed)
    ids = [p.id for p in contract.producers] + [c.id for c in contract.consumers]
    fresh = [f"x{i}" for i in range(len(ids))]
    rng.shuffle(fresh)
    name = dict(zip(ids, fresh, strict=True))
    places = rng.sample(sorted(contract.domains), len(contract.domains))
    place = dict(zip(contract.domains, places, strict=True))
    producers = [Producer(id=name[p.id], domain=place[p.domain]) for p in contract.producers]
    consumers = [
        replace(c, id=name[c.id], domain=place[c.domain], source=name[c.source])
        for c in contract.consumers
    ]
    rng.shuffle(producers)
    rng.shuffle(consumers)
    facts = contract.facts
    if facts.replica_classes:
        groups = tuple(tuple(name[p] for p in g) for g in facts.replica_classes.value)
        facts = replace(facts, replica_classes=replace(facts.replica_classes, value=groups))
    if facts.owner:
        owners = tuple(name[p] for p in facts.owner.value)
        facts = replace(facts, owner=replace(facts.owner, value=owners))
    if facts.reduction:
        value = facts.reduction.value
        sources = tuple(name[p] for p in value.sources)
        reduction = Reduction(op=value.op, sources=sources)
        facts = replace(facts, reduction=replace(facts.reduction, value=reduction))
    return replace(contract, producers=tuple(producers), consumers=tuple(consumers), facts=facts)


@given(bounded(), st.integers(0, 2**32))
def test_figures_and_optimum_survive_renaming(contract: Contract, seed: int) -> None:
    one, other = resolve_valid(contract), resolve_valid(renamed(contract, seed))
    assert figures(one) == figures(other)
    assert lower_valid(one)[1].footprint == lower_valid(other)[1].footprint


@given(bounded(consumers=3), st.data())
def test_another_demanded_consumer_never_lowers_the_optimum(contract, data) -> None:
    more = with_consumer(contract, data, demanded=True)
    assert figures(resolve_valid(more)).optimum >= figures(resolve_valid(contract)).optimum


@given(bounded(consumers=3), st.data())
def test_undemanded_consumers_and_idle_producers_change_nothing(contract, data) -> None:
    assume(contract.facts.demand is not None)
    ob = resolve_valid(contract)
    more = with_consumer(contract, data, demanded=False)
    if contract.facts.reduction is None:
        domain = data.draw(st.sampled_from(sorted(contract.domains)))
        idle = Producer(id="idle", domain=domain)
        more = replace(more, producers=(*more.producers, idle))
    other = resolve_valid(more)
    assert figures(other) == figures(ob)
    assert lower_valid(other)[0].ops == lower_valid(ob)[0].ops


def with_consumer(contract: Contract, data: st.DataObject, *, demanded: bool) -> Contract:
    added = Consumer(
        id="added",
        domain=data.draw(st.sampled_from(sorted(contract.domains))),
        source=data.draw(st.sampled_from([p.id for p in contract.producers])),
        demanded=demanded,
    )
    return replace(contract, consumers=(*contract.consumers, added))


@given(bounded(), st.data())
def test_an_owner_or_a_reduction_makes_the_source_map_irrelevant(contract, data) -> None:
    ob = resolve_valid(contract)
    assume(ob.owners is not None or ob.reduced is not None)
    ids = st.sampled_from([p.id for p in contract.producers])
    remapped = tuple(replace(c, source=data.draw(ids)) for c in contract.consumers)
    other = resolve_valid(replace(contract, consumers=remapped))
    assert figures(other) == figures(ob)
    assert lower_valid(other)[0].ops == lower_valid(ob)[0].ops


# Programs run ----------------------------------------------------------------------------------


def runs_as_judged(ob: Obligations) -> int:
    """Accepted programs equal the reference; how many of the rejected ones differ from it."""
    differing = 0
    for program in programs(ob, rejected=True).values():
        plan = program.plan(ob)
        assert (CHECKER.check_valid(ob, plan).verdict is Verdict.LEGAL) == program.accepted
        outcome = execute_valid(ob, plan).outcome
        if program.accepted:
            assert outcome is Outcome.EQUAL
        else:
            differing += outcome is Outcome.DIFFERS
    return differing


@pytest.mark.parametrize("obligation", ["replica", "exact_shard", "partial", "authority"])
def test_every_program_of_the_smaller_cases_runs_as_judged(obligation: str) -> None:
    differing = sum(
        runs_as_judged(resolve_valid(case.contract))
        for case in matrix()
        if case.obligation == obligation and case.tp <= 2
    )
    assert (differing > 0) == (obligation != "replica")


@settings(max_examples=25)
@given(bounded(producers=2, consumers=2, domains=2))
def test_programs_of_random_contracts_run_as_judged(contract: Contract) -> None:
    runs_as_judged(resolve_valid(contract))


# Bounds and budgets ----------------------------------------------------------------------------


def test_contracts_outside_the_bounds_are_named() -> None:
    case = next(c for c in matrix() if c.id == "exact_shard.tp4.d3.v0")
    ob = resolve_valid(case.contract)
    BOUNDS.check(ob)
    for bounds, bound in (
        (Bounds(producers=3), "4 producers"),
        (Bounds(demanded=3), "4 demanded consumers"),
        (Bounds(domains=2), "3 consumer domains"),
    ):
        with pytest.raises(BadInput, match=bound):
            bounds.check(ob)


def test_budget_ends_as_such() -> None:
    case = next(c for c in matrix() if c.id == "replica.tp4.d3.v0")
    with pytest.raises(BudgetEnded):
        figures(resolve_valid(case.contract), max_states=3)


def test_materialize_needs_two_remote_lanes_and_no_lineage() -> None:
    contract = replicated(
        {"p0": "a", "p1": "b"}, {"c0": ("b", "p0"), "c1": ("b", "p1"), "c2": ("c", "p0")}
    )
    assert remote_lanes(resolve_valid(contract)) == {}
    wider = replace(
        contract,
        consumers=(
            *contract.consumers,
            Consumer(id="c3", domain="b", source="p0", demanded=True),
        ),
    )
    assert remote_lanes(resolve_valid(wider)) == {"b": ["c0", "c3"]}


def test_program_is_the_sequence_up_to_order() -> None:
    case = next(c for c in matrix() if c.id == "exact_shard.tp4.d2.v0")
    ob = resolve_valid(case.contract)
    found = list(sequences(ob))
    by_ops = {frozenset(s.ops) for s in found}
    assert len({s.program for s in found}) == len(by_ops) == 1
    assert len({s.ops for s in found}) == len(found) == 24
    assert all(isinstance(s.plan(ob), Plan) for s in found)
