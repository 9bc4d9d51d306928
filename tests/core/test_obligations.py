"""What a contract's facts authorize, and static validation, every violation at once."""

from __future__ import annotations

import msgspec
import pytest

from sembridge.contract import (
    BoundaryEdge,
    Domain,
    Evidence,
    Fact,
    GraphFacts,
    Producer,
    Reduction,
    RuntimeFacts,
    Value,
    build_contract,
)
from sembridge.errors import BadInput, ContractRejected
from sembridge.layout import Lane, Partial, Replicate, Shard
from sembridge.lowering import SEMANTIC, lower
from sembridge.obligations import CONTRACT_RULES, resolve, resolve_valid, validate
from sembridge.surfaces import Logprobs, Tokens
from tests.core.build import contract

REDUCED = contract(reduce="sum")


def facts(edge, **changes):
    return msgspec.structs.replace(edge, facts=msgspec.structs.replace(edge.facts, **changes))


def reduction(op, *sources):
    return Fact(value=Reduction(op=op, sources=sources), origin="graph")


REJECTED = [
    (contract(demanded="00"), {"contract.demand"}),
    (contract(owner=("p0", "p1")), {"contract.owner"}),
    (contract(owner=()), {"contract.owner"}),
    (contract(3, owner=("p0", "p1", "p2"), classes=(("p0", "p1"),)), {"contract.owner"}),
    (contract(placement=Partial(op="sum")), {"contract.reduction"}),
    (
        contract(placement=Partial(op="sum"), surface=Tokens()),
        {"contract.reduction", "contract.observation"},
    ),
    (
        contract(placement=Partial(op="sum"), surface=Logprobs(), dtype="int32", demanded="00"),
        {"contract.reduction", "contract.observation", "contract.projection", "contract.demand"},
    ),
    (facts(REDUCED, reduction=reduction("maximum", "p0", "p1")), {"contract.reduction"}),
    (facts(REDUCED, reduction=reduction("sum", "p0")), {"contract.reduction"}),
    (facts(REDUCED, reduction=reduction("sum", "p0", "p1", "p1")), {"contract.reduction"}),
    (facts(contract(), reduction=reduction("sum", "p0", "p1")), {"contract.reduction"}),
    (contract(placement=Shard(dim=1), surface=Tokens()), {"contract.projection"}),
    (contract(placement=Shard(dim=-1), surface=Logprobs()), {"contract.projection"}),
    (contract(dtype="int32", surface=Tokens()), {"contract.projection"}),
    (contract(shape=(), surface=Tokens()), {"contract.projection"}),
    (contract(shape=(2, 0), surface=Tokens()), {"contract.projection"}),
    (contract(shape=(2, 6), valid_last=0, surface=Tokens()), {"contract.projection"}),
    (contract(shape=(1, 200), surface=Tokens(output_dtype="int8")), {"contract.projection"}),
    (
        contract(shape=(1, 2**24 + 2), surface=Tokens(output_dtype="float32")),
        {"contract.projection"},
    ),
    (contract(shape=(1, 300), surface=Tokens(output_dtype="bfloat16")), {"contract.projection"}),
]
ACCEPTED = [
    contract(owner=("p0", "p1"), classes=(("p0", "p1"),)),
    contract(placement=Shard(dim=0), surface=Tokens()),
    contract(shape=(1, 2**24 + 1), surface=Tokens(output_dtype="float32")),
    contract(shape=(1, 128), surface=Tokens(output_dtype="int8")),
    contract(shape=(1, 200), valid_last=128, surface=Tokens(output_dtype="int8")),
    contract(shape=(0, 8), surface=Tokens()),
    contract(shape=()),
    contract(reduce="product"),
]


@pytest.mark.parametrize(("edge", "rules"), REJECTED)
def test_rejected_with_every_violation(edge, rules):
    assert {v.rule for v in validate(resolve(edge))} == rules
    with pytest.raises(ContractRejected):
        lower(edge)


@pytest.mark.parametrize("edge", ACCEPTED)
def test_accepted(edge):
    resolve_valid(edge)


def test_every_validation_rule_has_a_rejected_example():
    assert {rule for _, rules in REJECTED for rule in rules} == {name for name, _ in CONTRACT_RULES}


def test_producers_of_a_reduction_share_a_domain():
    split = msgspec.structs.replace(
        REDUCED, producers=(REDUCED.producers[0], Producer(id="p1", domain="t"))
    )
    assert {v.rule for v in validate(resolve(split))} == {"contract.reduction"}


@pytest.mark.parametrize("origin", ["graph", "runtime", "validation"])
def test_only_graph_and_runtime_facts_authorize(origin):
    edge = contract(surface=Tokens(), owner=("p1",), classes=(("p0", "p1"),), demanded="01")
    for name in ("surface", "owner", "replica_classes", "demand"):
        fact = msgspec.structs.replace(getattr(edge.facts, name), origin=origin)
        edge = facts(edge, **{name: fact})
    ob = resolve(edge)
    authorized = origin != "validation"
    assert (ob.owners is not None) == authorized
    assert bool(ob.class_of) == authorized
    assert ob.demanded == (["c1"] if authorized else ["c0", "c1"])
    assert ob.observed == (("tokens",) if authorized else ("value",))


def test_an_unauthorized_reduction_completes_nothing():
    seen = Fact(value=Reduction(op="sum", sources=("p0", "p1")), origin="validation")
    assert {v.rule for v in validate(resolve(facts(REDUCED, reduction=seen)))} == {
        "contract.reduction"
    }


EDGE = BoundaryEdge(
    name="e",
    value=Value(kind="hidden", shape=(4, 8), dtype="bfloat16"),
    domains={"h": Domain(stack="cann"), "t": Domain(stack="cuda")},
    producers=(Producer(id="p0", domain="h"), Producer(id="p1", domain="h")),
    consumers=(Lane(id="c0", domain="t", source="p0"), Lane(id="c1", domain="t", source="p1")),
    placement=Replicate(),
)


def test_a_contract_from_facts_carries_their_origin():
    built = build_contract(
        EDGE,
        GraphFacts(replica_classes=(("p0", "p1"),), by="all_reduce"),
        RuntimeFacts(demanded=["c1"], owner=("p1",), by="scheduler"),
        Evidence(surface=Tokens(), owner=("p0",), by="byte equality"),
    )
    origins = {
        name: (fact.origin, fact.by)
        for name in built.facts.__struct_fields__
        if (fact := getattr(built.facts, name)) is not None
    }
    assert origins == {
        "replica_classes": ("graph", "all_reduce"),
        "owner": ("runtime", "scheduler"),
        "demand": ("runtime", "scheduler"),
        "surface": ("validation", "byte equality"),
    }
    assert [c.demanded for c in built.consumers] == [False, True]
    assert resolve(built).observed == ("value",)
    with pytest.raises(AttributeError):
        built.name = "other"


def test_absent_facts_select_the_layout_materializing_plan():
    kinds = [type(op).__name__ for op in lower(build_contract(EDGE)).ops]
    assert kinds == ["Send", "Send", "AllGather"]
    lineage = GraphFacts(replica_classes=(("p0", "p1"),))
    assert [type(op).__name__ for op in lower(build_contract(EDGE, lineage)).ops] == [
        "Send",
        "Broadcast",
    ]


def test_a_stranger_among_the_demanded_is_bad_input():
    with pytest.raises(BadInput, match="c7"):
        build_contract(EDGE, runtime=RuntimeFacts(demanded=["c0", "c7"]))


def test_contracts_that_differ_in_one_authorizing_fact_never_share_a_plan():
    base = contract(owner=("p1",), surface=Tokens())
    moved = facts(base, owner=Fact(value=("p0",), origin="runtime"))
    demoted = facts(base, owner=Fact(value=("p1",), origin="validation"))
    later = msgspec.structs.replace(base, tag=msgspec.structs.replace(base.tag, epoch=9))
    plans = [lower(edge, SEMANTIC) for edge in (base, moved, demoted, later)]
    assert len({msgspec.json.encode(p) for p in plans}) == 4
    product = contract(reduce="product")
    assert lower(REDUCED).ops != lower(product).ops
