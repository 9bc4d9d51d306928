"""The solver chooses the plan: none is accepted and wrong, and the lowered one is the cheapest."""

from __future__ import annotations

import msgspec
import pytest

from experiments.matrix import case
from oracle.smt.prove import prove
from oracle.smt.solver import Answer
from oracle.smt.symbolic import Bounds, accepted_and_wrong, cheapest
from sembridge.check import check
from sembridge.contract import Contract, Fact
from sembridge.lowering import lower_valid
from sembridge.obligations import resolve_valid
from sembridge.surfaces import Logprobs, Surface, Tokens
from sembridge.verdict import Verdict

from .corpus import MATRIX, lanes


def with_surface(contract: Contract, surface: Surface) -> Contract:
    fact = Fact[Surface](value=surface, origin="runtime")
    return msgspec.structs.replace(
        contract,
        value=msgspec.structs.replace(contract.value, shape=(2, 3), dtype="float32"),
        facts=msgspec.structs.replace(contract.facts, surface=fact),
    )


CONTRACTS = {
    **MATRIX,
    "lanes": lanes(2),
    "tokens of a replica": with_surface(MATRIX["replica"], Tokens()),
    "tokens of an owner": with_surface(MATRIX["authority"], Tokens()),
    "logprobs of a partial": with_surface(MATRIX["partial"], Logprobs()),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_no_short_plan_is_accepted_and_wrong(name: str) -> None:
    ob = resolve_valid(CONTRACTS[name])
    assert accepted_and_wrong(ob, Bounds(ops=4, cells=2)).answer is Answer.UNSAT


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("replica", "availability"),
        ("exact_shard", "provenance"),
        ("partial", "completion"),
        ("partial", "reduction"),
        ("partial", "redelivery"),
        ("authority", "authority"),
        ("logprobs of a partial", "completion"),
        ("tokens of a replica", "projection"),
    ],
)
def test_a_weakened_checker_accepts_a_plan_that_the_other_judges_refute(
    name: str, rule: str
) -> None:
    contract = CONTRACTS[name]
    found = accepted_and_wrong(resolve_valid(contract), Bounds(ops=6, cells=2), without=[rule])
    assert found.plan is not None
    assert prove(contract, found.plan).verdict is Verdict.ILLEGAL
    assert rule in {v.rule for v in check(contract, found.plan).violations}


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_lowered_plan_is_the_cheapest_that_the_solver_finds(name: str) -> None:
    contract = CONTRACTS[name]
    ob = resolve_valid(contract)
    lowered, report = lower_valid(ob)
    found = cheapest(ob, Bounds(ops=len(lowered.ops) + 1, cells=2))
    assert found.answer is Answer.SAT
    assert found.cost == tuple(report.footprint)
    assert found.plan is not None
    checked = check(contract, found.plan)
    assert (checked.verdict, tuple(checked.footprint)) == (Verdict.LEGAL, found.cost)
    assert prove(contract, found.plan).verdict is Verdict.LEGAL


def test_too_few_ops_reach_nobody() -> None:
    ob = resolve_valid(case("partial", 2, 1, 0).contract)
    assert cheapest(ob, Bounds(ops=1)).answer is Answer.UNSAT


def test_a_budget_that_ends_is_unknown() -> None:
    ob = resolve_valid(MATRIX["partial"])
    assert accepted_and_wrong(ob, Bounds(ops=4, rlimit=1)).answer is Answer.UNKNOWN
