"""Explanations: every figure is a difference of two lowered contracts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembridge import io
from sembridge.check import check
from sembridge.contract import DemandFact, Fact, Producer
from sembridge.explain import ALLOWS, CANDIDATES, explain
from sembridge.lowering import lower
from sembridge.obligations import resolve, validate
from sembridge.surfaces import Logprobs, Tokens, TopLogprobs
from tests.core.build import contract
from tests.strategies import contracts

CASES = sorted((Path(__file__).parents[1] / "cases").iterdir())


def with_fact(edge, name, fact):
    return msgspec.structs.replace(edge, facts=msgspec.structs.replace(edge.facts, **{name: fact}))


def crossing(edge):
    """(bytes, startups) across domains of the lowered plan; None for a rejected contract."""
    if validate(resolve(edge)):
        return None
    footprint = check(edge, lower(edge)).footprint
    return footprint.cross_bytes, footprint.cross_startups


def less(dear, cheap):
    return None if dear is None or cheap is None else (dear[0] - cheap[0], dear[1] - cheap[1])


def test_every_fact_of_a_contract_has_an_entry():
    facts = set(contract().facts.__struct_fields__)
    assert facts == set(ALLOWS) == set(CANDIDATES)


@settings(max_examples=80)
@given(st.booleans().flatmap(lambda beyond: contracts(beyond=beyond)))
def test_what_a_present_fact_saves_is_the_difference_without_it(edge):
    found = explain(edge)
    base = crossing(edge)
    assert (found.outcome.footprint is None) == (base is None) == bool(found.violations)
    named = {r.fact: r for r in found.reasons if r.standing == "authorizes"}
    for name in ALLOWS:
        fact = getattr(edge.facts, name)
        assert (name in named) == (fact is not None and fact.authorizes)
        if name in named:
            without = crossing(with_fact(edge, name, None))
            assert named[name].saves == less(without, base)
            assert named[name].origin == fact.origin
    assert len(found.sentences) <= 2 + len(found.reasons)


@settings(max_examples=80)
@given(contracts())
def test_what_evidence_would_save_is_the_difference_with_it(edge):
    base = crossing(edge)
    shown = {r.fact: r for r in explain(edge).reasons if r.standing == "evidence"}
    for name in ALLOWS:
        fact = getattr(edge.facts, name)
        if fact is None or fact.authorizes:
            assert name not in shown
            continue
        saves = less(
            base, crossing(with_fact(edge, name, msgspec.structs.replace(fact, origin="graph")))
        )
        worth = saves is not None and saves > (0, 0)
        assert (name in shown) == worth or base is None
        if name in shown:
            assert shown[name].saves == saves


def test_a_missing_class_and_a_missing_owner_are_named_with_what_they_would_save():
    edge = contract(4, shape=(4, 200_064), surface=Tokens())
    named = {r.fact: r for r in explain(edge).reasons if r.standing == "absent"}
    assert {name: r.saves for name, r in named.items()} == {
        "replica_classes": (48, 3),
        "owner": (48, 3),
    }
    owned = contract(4, shape=(4, 200_064), surface=Tokens(), owner=("p0",))
    assert less(crossing(edge), crossing(owned)) == (48, 3)


def test_a_narrower_surface_is_offered_with_its_bytes():
    edge = contract(4, shape=(4, 200_064), surface=Logprobs(), owner=("p0",))
    offered = {r.what: r.saves for r in explain(edge).reasons if r.standing == "alternative"}
    assert offered == {"tokens": (3_201_024 - 16, 0), "top_logprobs(5)": (3_201_024 - 224, 0)}
    narrow = contract(4, shape=(4, 200_064), surface=TopLogprobs(k=5), owner=("p0",))
    assert [r.what for r in explain(narrow).reasons if r.standing == "alternative"] == ["tokens"]


def test_a_demand_that_is_only_evidence():
    edge = with_fact(contract(demanded="10"), "demand", DemandFact(origin="validation", by="trace"))
    evidence = next(r for r in explain(edge).reasons if r.standing == "evidence")
    assert (evidence.fact, evidence.origin, evidence.by) == ("demand", "validation", "trace")
    assert any("only evidence" in s and "trace" in s for s in explain(edge).sentences)


def test_an_owner_in_another_domain_is_said_to_cost():
    edge = contract(2, tails="t", sources="1", owner=("p0",))
    home = (edge.producers[0], Producer(id="p1", domain="t"))
    edge = msgspec.structs.replace(edge, producers=home)
    owner = next(r for r in explain(edge).reasons if r.fact == "owner")
    assert owner.saves == (-48, -1)
    assert any(s.endswith("so it costs 48 B and 1 startup.") for s in explain(edge).sentences)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_shared_cases(case, golden):
    found = explain(io.read_contract(case / "contract.json"))
    golden(f"explain/{case.name}.txt", "\n".join(found.sentences) + "\n")


def test_the_command(sembridge, tmp_path):
    path = tmp_path / "edge.json"
    edge = contract(classes=(("p0", "p1"),), classes_origin="validation")
    path.write_bytes(io.encode(edge))
    ran = sembridge("explain", path)
    assert (ran.code, ran.err) == (0, "")
    assert tuple(ran.out.splitlines()) == explain(edge).sentences
    document = json.loads(sembridge("explain", path, "--json").out)
    assert document["contract"] == "edge"
    assert document["outcome"]["footprint"]["cross_bytes"] == 48
    assert {r["fact"]: r["standing"] for r in document["reasons"]}["replica_classes"] == "evidence"
    assert sembridge("explain", path, "--quiet").out == ""


def test_the_command_on_a_rejected_contract_and_on_bad_input(sembridge, tmp_path):
    path = tmp_path / "edge.json"
    path.write_bytes(io.encode(contract(owner=("p0", "p1"))))
    ran = sembridge("explain", path)
    assert ran.code == 1
    assert "rejected with contract.owner" in ran.out
    path.write_bytes(b"{}")
    ran = sembridge("explain", path, "--json")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)


def test_facts_of_graph_origin_stay_named():
    edge = contract(classes=(("p0", "p1"),))
    fact = Fact(value=(("p0", "p1"),), origin="graph", by="all_reduce at layers.3")
    sentence = explain(with_fact(edge, "replica_classes", fact)).sentences[1]
    assert sentence.startswith("replica_classes p0, p1 (graph, all_reduce at layers.3) lets ")
