"""What must hold for every contract of the new surfaces, as for every other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.matrix import PLANNERS
from oracle.certify import NotProven, certify
from oracle.enumerate import programs
from oracle.optimum import figures
from sembridge import io
from sembridge.check import CHECKER, check
from sembridge.errors import BadInput
from sembridge.lowering import POLICIES, REFERENCE, SEMANTIC, lower
from sembridge.obligations import resolve_valid
from sembridge.reference import Outcome, execute
from sembridge.surfaces import Choice, ChosenTokens, TopLogprobs
from sembridge.verdict import Verdict
from tests.core.build import contract
from tests.strategies import contracts, plans, valid_contracts
from tests.surfaces.test_contracts import ACCEPTED, EDGE

OBSERVED = {"coverage", "surface", "completion", "provenance", "substitution", "authority"}


@given(valid_contracts(beyond=True))
def test_every_policys_plan_is_accepted_and_equals_the_full_logit_reference(edge):
    for policy in POLICIES.values():
        made = lower(edge, policy)
        assert check(edge, made).verdict is Verdict.LEGAL, policy.name
        assert execute(edge, made).outcome is Outcome.EQUAL, policy.name


@settings(max_examples=500)
@given(st.data())
def test_accepted_plans_equal_the_full_logit_reference(data):
    edge = data.draw(valid_contracts(beyond=True))
    tried = data.draw(plans(edge))
    report, execution = check(edge, tried), execute(edge, tried)
    rules = {v.rule for v in report.violations}
    if report.verdict is Verdict.LEGAL:
        assert execution.outcome is Outcome.EQUAL
    if "redelivery" not in rules and any(
        v.rule in OBSERVED and v.op is None for v in report.violations
    ):
        assert execution.outcome is not Outcome.EQUAL


@given(valid_contracts(beyond=True))
def test_more_capabilities_never_move_more_than_the_reference(edge):
    ob = resolve_valid(edge)
    if not (ob.replicate and ob.class_of):
        semantic = check(edge, lower(edge, SEMANTIC)).footprint
        assert semantic <= check(edge, lower(edge, REFERENCE)).footprint


@given(contracts(beyond=True))
def test_contracts_round_trip(edge):
    printed = io.encode(edge)
    assert io.decode_contract(printed) == edge
    assert io.encode(io.decode_contract(printed)) == printed


@given(valid_contracts(beyond=True))
def test_baselines_are_judged_alike_by_both_judges(edge):
    for name in ("layout-only", "byte-only"):
        tried = PLANNERS[name](edge)
        legal = check(edge, tried).verdict is Verdict.LEGAL
        assert legal == (execute(edge, tried).outcome is Outcome.EQUAL), name


@pytest.mark.parametrize("edge", [EDGE, ACCEPTED["one allowed"]])
def test_what_the_oracle_has_no_steps_for_is_outside_it(edge):
    ob = resolve_valid(edge)
    for ask in (figures, programs):
        with pytest.raises(BadInput, match="outside the bounded family"):
            ask(ob)
    with pytest.raises(NotProven, match="no bound is known"):
        certify(ob, lower(edge))


@pytest.mark.parametrize(
    "surface",
    [
        TopLogprobs(k=2),
        ChosenTokens(choices=(Choice(banned=(1,)), Choice()), given="everywhere"),
    ],
)
@pytest.mark.parametrize("owner", [None, ("p1",)])
def test_the_oracle_finds_the_lowered_plan_optimal(surface, owner):
    edge = contract(shape=(2, 60), surface=surface, owner=owner)
    ob = resolve_valid(edge)
    made = lower(edge)
    lowered = CHECKER.check_valid(ob, made).footprint
    assert figures(ob).optimum == lowered
    assert certify(ob, made).footprint == tuple(lowered)
