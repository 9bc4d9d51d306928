"""The SMT model on the new surfaces: its verdict is the checker's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.smt.prove import prove, prove_valid
from oracle.smt.symbolic import Bounds, accepted_and_wrong, cheapest
from sembridge.check import CHECKER, check
from sembridge.errors import BadInput
from sembridge.lowering import POLICIES, lower
from sembridge.obligations import resolve_valid
from sembridge.verdict import Verdict
from tests.strategies import plans, valid_contracts
from tests.surfaces.test_contracts import ACCEPTED, BROKEN, EDGE, plan


@settings(max_examples=200)
@given(st.data())
def test_the_model_agrees_with_the_checker(data):
    edge = data.draw(valid_contracts(producers=3, consumers=3, beyond=True))
    tried = data.draw(plans(edge))
    ob = resolve_valid(edge)
    found = CHECKER.check_valid(ob, tried)
    assert prove_valid(ob, tried, explain=False).verdict is found.verdict


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_combine_is_refused_by_proof(name):
    ops, rules = BROKEN[name]
    proof = prove(EDGE, plan(*ops))
    assert proof.verdict is Verdict.ILLEGAL
    assert {v.rule for v in proof.violations} & rules


@pytest.mark.parametrize("name", [n for n, edge in ACCEPTED.items() if edge.value.shape[0]])
def test_every_policys_plan_is_proven_legal(name):
    edge = ACCEPTED[name]
    for policy in POLICIES.values():
        made = lower(edge, policy)
        assert prove(edge, made).verdict is check(edge, made).verdict is Verdict.LEGAL


@pytest.mark.parametrize("edge", [EDGE, ACCEPTED["one allowed"]])
def test_what_symbolic_plans_do_not_model_they_refuse(edge):
    bounds = Bounds(ops=1, cells=1)
    for ask in (accepted_and_wrong, cheapest):
        with pytest.raises(BadInput, match="symbolic plans"):
            ask(resolve_valid(edge), bounds)


def test_the_proof_of_a_combine_needs_the_combine_and_no_class():
    facts = prove(EDGE, lower(EDGE)).facts
    assert facts is not None
    assert "combine" in facts
    assert not any(fact.startswith("replica_classes") for fact in facts)
