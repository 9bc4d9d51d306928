"""What must hold for every contract and plan: soundness, acceptance, invariance, round trips."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.matrix import PLANNERS
from sembridge import io
from sembridge.check import check
from sembridge.contract import Contract
from sembridge.errors import BadInput, ContractRejected
from sembridge.footprint import Footprint
from sembridge.lowering import LADDER, POLICIES, REFERENCE, SEMANTIC, lower
from sembridge.obligations import resolve, validate
from sembridge.reference import Outcome, execute
from sembridge.verdict import Verdict
from tests.strategies import contracts, plans, valid_contracts

OBSERVED = {"coverage", "surface", "completion", "provenance", "substitution", "authority"}


@given(valid_contracts())
def test_every_policys_plan_is_accepted_and_equals_the_reference(contract):
    for policy in POLICIES.values():
        plan = lower(contract, policy)
        assert check(contract, plan).verdict is Verdict.LEGAL, policy.name
        assert execute(contract, plan).outcome is Outcome.EQUAL, policy.name


@settings(max_examples=60)
@given(valid_contracts(producers=16, consumers=16, domains=5))
def test_large_contracts_lower_to_plans_that_equal_the_reference(contract):
    for policy in (SEMANTIC, REFERENCE):
        plan = lower(contract, policy)
        assert check(contract, plan).verdict is Verdict.LEGAL
        assert execute(contract, plan).outcome is Outcome.EQUAL


@settings(max_examples=600)
@given(st.data())
def test_accepted_plans_equal_the_reference(data):
    contract = data.draw(valid_contracts())
    plan = data.draw(plans(contract))
    report, execution = check(contract, plan), execute(contract, plan)
    if report.verdict is Verdict.LEGAL:
        assert execution.outcome is Outcome.EQUAL
    if any(v.rule in OBSERVED and v.op is None for v in report.violations):
        assert execution.outcome is not Outcome.EQUAL


@given(contracts())
def test_a_rejected_contract_lowers_to_nothing_and_every_plan_of_it_is_illegal(contract):
    violations = validate(resolve(contract))
    for lowered in (SEMANTIC, REFERENCE, LADDER[0]):
        if violations:
            with pytest.raises(ContractRejected) as caught:
                lower(contract, lowered)
            assert caught.value.violations == tuple(violations)
        else:
            lower(contract, lowered)


@given(valid_contracts())
def test_more_capabilities_never_cost_more(contract):
    steps = [check(contract, lower(contract, p)).footprint for p in (*LADDER, SEMANTIC)]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] <= check(contract, lower(contract, REFERENCE)).footprint


def renamed(contract: Contract, names: dict[str, str]) -> Contract:
    """The contract with endpoints and domains renamed."""

    def walk(node):
        if isinstance(node, str):
            return names.get(node, node)
        if isinstance(node, list):
            return [walk(x) for x in node]
        if isinstance(node, dict):
            return {names.get(k, k): walk(v) for k, v in node.items()}
        return node

    return msgspec.convert(walk(msgspec.json.decode(msgspec.json.encode(contract))), Contract)


@given(valid_contracts(), st.randoms(use_true_random=False))
def test_lowering_ignores_the_order_of_the_input(contract, rng: random.Random):
    built = msgspec.json.decode(msgspec.json.encode(contract))
    for key in ("producers", "consumers"):
        rng.shuffle(built[key])
    domains = list(built["domains"].items())
    rng.shuffle(domains)
    built["domains"] = dict(domains)
    shuffled = msgspec.convert(built, Contract)
    for policy in (SEMANTIC, REFERENCE):
        assert lower(shuffled, policy).ops == lower(contract, policy).ops


@given(valid_contracts(), st.randoms(use_true_random=False))
def test_lowering_does_not_depend_on_names(contract, rng: random.Random):
    ids = [p.id for p in contract.producers] + [c.id for c in contract.consumers]
    kept = {x: f"x{i:03}" for i, x in enumerate(sorted(ids, key=lambda x: (len(x), x)))}
    kept |= {d: f"domain-{d}" for d in contract.domains}
    in_order = renamed(contract, kept)
    back = {new: old for old, new in kept.items()}
    ops = msgspec.json.decode(msgspec.json.encode(lower(in_order).ops))

    def undo(node):
        if isinstance(node, dict):
            return {k: undo(v) for k, v in node.items()}
        if isinstance(node, list):
            return [undo(x) for x in node]
        return back.get(node, node) if isinstance(node, str) else node

    assert undo(ops) == msgspec.json.decode(msgspec.json.encode(lower(contract).ops))

    mixed = ids[:]
    rng.shuffle(mixed)
    anyhow = renamed(contract, dict(zip(ids, (f"y{i}" for i, _ in enumerate(mixed)), strict=True)))
    same = check(anyhow, lower(anyhow)).footprint
    assert same == check(contract, lower(contract)).footprint


@given(contracts())
def test_contracts_round_trip(contract):
    printed = io.encode(contract)
    assert io.decode_contract(printed) == contract
    assert io.encode(io.decode_contract(printed)) == printed


@given(st.data())
def test_plans_round_trip(data):
    plan = data.draw(plans(data.draw(contracts())))
    printed = io.encode(plan)
    assert io.decode_plan(printed) == plan
    assert io.encode(io.decode_plan(printed)) == printed


@given(valid_contracts())
def test_lowering_is_deterministic(contract):
    assert io.encode(lower(contract)) == io.encode(lower(io.decode_contract(io.encode(contract))))


@given(st.data())
def test_baselines_are_judged_alike_by_both_judges(data):
    contract = data.draw(valid_contracts())
    for name in ("layout-only", "byte-only"):
        plan = PLANNERS[name](contract)
        legal = check(contract, plan).verdict is Verdict.LEGAL
        assert legal == (execute(contract, plan).outcome is Outcome.EQUAL), name


@given(st.data())
def test_footprints_add_up_and_compare_in_order(data):
    assert not Footprint().dominates(Footprint())
    contract = data.draw(valid_contracts())
    f = check(contract, lower(contract)).footprint
    more = msgspec.structs.replace(f, ops=f.ops + 1)
    assert f < more
    assert f.dominates(more)
    assert list(f) == [getattr(f, name) for name in f.__struct_fields__]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_contract_or_bad_input(data):
    with pytest.raises(BadInput) as caught:
        io.decode_contract(data)
    assert caught.value.path.startswith("$")
