"""A plan is proved legal by the facts it needs, or broken where it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from oracle.smt import solver
from oracle.smt.model import TooLarge, encode
from oracle.smt.prove import prove
from oracle.smt.solver import Answer
from sembridge import io
from sembridge.check import check
from sembridge.contract import Consumer, Contract, DemandFact, Fact, Facts, Reduction
from sembridge.layout import Partial, Shard
from sembridge.lowering import lower
from sembridge.obligations import resolve
from sembridge.plan import AllGather, Broadcast, Part, Plan, Project, Reduce, Send
from sembridge.verdict import Verdict

from .corpus import MATRIX, lanes, plan, reducible_again, sum_of, tokens

CASES = sorted((Path(__file__).parents[1] / "cases").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_proved_as_it_is_expected(case: Path) -> None:
    contract, given = io.read_contract(case / "contract.json"), io.read_plan(case / "plan.json")
    expected = json.loads((case / "expect.json").read_text())
    found = prove(contract, given)
    assert found.verdict == expected["verdict"] == check(contract, given).verdict
    if found.verdict is Verdict.ILLEGAL:
        rules = {v.rule for v in found.violations}
        assert rules & {expected["rule"], *expected.get("also", ())}


def one_class(k: int = 2, origin: str = "graph") -> Facts:
    members = tuple([f"p{i}" for i in range(k)])
    return Facts(replica_classes=Fact(value=(members,), origin=origin))  # type: ignore[arg-type]


REPRESENTATIVE = (Send(src="p0", dst="c0"), Broadcast(src="c0", dsts=("c1",)))


@pytest.mark.parametrize(
    ("obligation", "facts"),
    [
        ("replica", ("placement", 'replica_classes of "p0"', "domains")),
        ("exact_shard", ("placement", "domains")),
        ("partial", ("placement", "reduction", "domains")),
        ("authority", ("placement", "owner", "domains")),
    ],
)
def test_a_legal_plan_names_the_facts_it_needs(obligation: str, facts: tuple[str, ...]) -> None:
    contract = MATRIX[obligation]
    proof = prove(contract, lower(contract))
    assert (proof.verdict, proof.facts) == (Verdict.LEGAL, facts)


def test_no_fact_of_a_proof_can_be_spared() -> None:
    for contract in MATRIX.values():
        script = encode(resolve(contract), lower(contract)).script
        used = solver.core(script)
        assert used is not None
        assert solver.decide(script, used).answer is Answer.UNSAT
        for name in used:
            rest = [n for n in used if n != name]
            assert solver.decide(script, rest).answer is Answer.SAT


def test_demand_is_used_only_where_somebody_is_left_out() -> None:
    contract = lanes(facts=Facts(demand=DemandFact(origin="runtime")))
    c0, c1 = contract.consumers
    idle = msgspec.structs.replace(c1, demanded=False)
    contract = msgspec.structs.replace(contract, consumers=(c0, idle))
    pruned = prove(contract, plan(contract, Send(src="p0", dst="c0")))
    everyone = prove(contract, plan(contract, *[Send(src=f"p{i}", dst=f"c{i}") for i in range(2)]))
    assert pruned.facts is not None
    assert everyone.facts is not None
    assert "demand" in pruned.facts
    assert "demand" not in everyone.facts


def test_equal_bytes_seen_in_validation_authorize_nothing() -> None:
    seen, proven = lanes(facts=one_class(origin="validation")), lanes(facts=one_class())
    assert prove(proven, plan(proven, *REPRESENTATIVE)).verdict is Verdict.LEGAL
    found = prove(seen, plan(seen, *REPRESENTATIVE))
    assert {(v.rule, v.endpoint) for v in found.violations} == {("substitution", "c1")}


def test_slices_of_lanes_reassemble_only_under_a_replicate_placement() -> None:
    ops = (
        Send(src="p0", dst="c0", part=Part(index=0, of=2)),
        Send(src="p1", dst="c1", part=Part(index=1, of=2)),
        AllGather(members=("c0", "c1")),
    )
    for contract, verdict in ((lanes(), Verdict.LEGAL), (lanes(placement=Shard(dim=0)), "illegal")):
        assert prove(contract, plan(contract, *ops)).verdict == verdict


@pytest.mark.parametrize("operator", ["sum", "product", "minimum", "maximum"])
def test_a_reduction_is_the_references_in_any_order_of_sources(operator: str) -> None:
    contract = MATRIX["partial"]
    raw = msgspec.to_builtins(contract)
    raw["placement"]["op"] = raw["facts"]["reduction"]["value"]["op"] = operator
    contract = msgspec.convert(raw, Contract)
    ops = (
        Reduce(operator=operator, sources=("p1", "p0"), targets=("p0", "p1")),
        Send(src="p1", dst="c0"),
        Broadcast(src="c0", dsts=("c1",)),
    )
    assert prove(contract, plan(contract, *ops)).verdict is Verdict.LEGAL
    other = "minimum" if operator != "minimum" else "sum"
    wrong = plan(contract, msgspec.structs.replace(ops[0], operator=other), *ops[1:])
    assert {v.rule for v in prove(contract, wrong).violations} == {"reduction"}


def test_a_wrong_value_is_found_apart_from_the_rules() -> None:
    """The doubled sum that the checker once let pass."""
    contract, doubled = reducible_again()
    broken = prove(contract, doubled).broken
    assert [c.endpoint for c in broken if c.value_of == "value"] == ["c0"]
    assert check(contract, doubled).verdict is Verdict.ILLEGAL


def test_a_token_is_the_projection_of_a_whole_completed_value() -> None:
    contract = lanes(facts=msgspec.structs.replace(one_class(), surface=tokens()), shape=(2, 3))
    early = (
        Send(src="p0", dst="c0", part=Part(index=0, of=2)),
        Project(projection="argmax", at="c0"),
    )
    assert "projection" in {v.rule for v in prove(contract, plan(contract, *early)).violations}
    late = (
        Project(projection="argmax", at="p1"),
        Send(src="p1", dst="c0", surface="tokens"),
        Broadcast(src="c0", dsts=("c1",), surface="tokens"),
    )
    assert prove(contract, plan(contract, *late)).verdict is Verdict.LEGAL


def test_every_broken_rule_is_reported_where_it_breaks() -> None:
    contract = lanes(facts=sum_of(2), placement=MATRIX["partial"].placement)
    sent = plan(contract, Send(src="p0", dst="c0"), Send(src="p0", dst="c0"))
    found = {(v.rule, v.op, v.endpoint) for v in prove(contract, sent).violations}
    assert found >= {
        ("redelivery", 1, "c0"),
        ("completion", None, "c0"),
        ("provenance", None, "c0"),
        ("reduction", None, "c0"),
        ("coverage", None, "c1"),
    }


def test_a_rejected_contract_is_illegal_with_its_own_rules() -> None:
    contract = lanes(facts=Facts(owner=Fact(value=("p0", "p1"), origin="runtime")))
    found = prove(contract, plan(contract))
    assert found.verdict is Verdict.ILLEGAL
    assert {v.rule for v in found.violations} == {"contract.owner"}


def test_a_budget_that_ends_is_unknown() -> None:
    contract = MATRIX["partial"]
    found = prove(contract, lower(contract), rlimit=1)
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason


def huge() -> tuple[Contract, Plan]:
    contract = lanes(shape=(4000,))
    consumers = tuple(
        [Consumer(id=f"c{i}", domain="B", source="p0", demanded=True) for i in range(2000)]
    )
    contract = msgspec.structs.replace(contract, consumers=consumers)
    sends = [Send(src="p0", dst="c0", part=Part(index=i, of=1999)) for i in range(1999)]
    return contract, plan(contract, *sends)


def test_a_formula_too_large_to_build_is_unknown() -> None:
    contract, sliced = huge()
    with pytest.raises(TooLarge):
        encode(resolve(contract), sliced)
    assert prove(contract, sliced).verdict is Verdict.UNKNOWN


def test_a_tensors_size_does_not_matter() -> None:
    contract = lanes(facts=one_class(), shape=(2**20, 2**40))
    assert prove(contract, plan(contract, *REPRESENTATIVE)).verdict is Verdict.LEGAL


def test_a_product_of_many_stays_linear() -> None:
    sources = tuple([f"p{i}" for i in range(12)])
    facts = Facts(reduction=Fact(value=Reduction(op="product", sources=sources), origin="graph"))
    contract = lanes(12, placement=Partial(op="product"), facts=facts, shape=(24,))
    once = Reduce(operator="product", sources=sources[::-1], targets=sources)
    sends = [Send(src="p3", dst="c0", part=Part(index=i, of=8)) for i in range(8)]
    rest = Broadcast(src="c0", dsts=tuple([f"c{i}" for i in range(1, 12)]))
    good, twice = (plan(contract, *[once] * n, *sends, rest) for n in (1, 2))
    assert prove(contract, good).verdict is Verdict.LEGAL
    broken = prove(contract, twice).broken
    assert {c.endpoint for c in broken if c.value_of} == {c.id for c in contract.consumers}


def test_an_assembled_copy_is_as_complete_as_its_elements() -> None:
    """An unfinished slice without elements does not spoil the finished value that follows."""
    contract = lanes(2, placement=Partial(op="sum"), facts=sum_of(2), shape=(1,))
    reduced = Reduce(operator="sum", sources=("p0", "p1"), targets=("p0", "p1"))
    nothing, all_of_it = (Part(index=i, of=2) for i in (1, 0))
    ops = [
        Send(src="p0", dst="c0", part=nothing),
        reduced,
        Send(src="p0", dst="c0", part=all_of_it),
        Send(src="p1", dst="c1"),
    ]
    given = plan(contract, *ops)
    assert prove(contract, given).verdict is check(contract, given).verdict is Verdict.LEGAL
