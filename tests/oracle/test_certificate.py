"""A certificate that passes is a proof; whatever is tampered with does not pass."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle.verify
from oracle.certificate import EVERY_PLAN, FAMILY, Certificate, digest
from oracle.certify import NotProven, certify
from oracle.optimum import figures
from oracle.verify import recomputed, verify
from sembridge.contract import Consumer, Contract, DemandFact, Domain, Fact, Facts, Producer, Value
from sembridge.footprint import footprint_of
from sembridge.layout import Replicate
from sembridge.lowering import REFERENCE, lower_valid
from sembridge.obligations import resolve_valid
from sembridge.surfaces import Tokens
from tests.strategies import plans, valid_contracts

replace = msgspec.structs.replace


@st.composite
def tampered(draw: st.DrawFn, certificate: Certificate, endpoints: list[str]) -> Certificate:
    """One field of a certificate changed."""
    one = st.sampled_from(endpoints)
    field = draw(st.sampled_from(["footprint", "scope", "crossing", "local", "projecting"]))
    match field:
        case "footprint":
            at = draw(st.integers(0, 5))
            six = list(certificate.footprint)
            six[at] += draw(st.integers(-9, 9).filter(bool))
            return replace(certificate, footprint=tuple(six))
        case "scope":
            other = FAMILY if certificate.scope == EVERY_PLAN else EVERY_PLAN
            return replace(certificate, scope=other)
        case "local":
            groups = st.lists(st.lists(one, max_size=3).map(tuple), max_size=4).map(tuple)
            return replace(certificate, local=draw(groups))
        case _:
            listed = st.lists(one, max_size=5).map(tuple)
            return replace(certificate, **{field: draw(listed)})


@given(valid_contracts(), st.data())
def test_a_tampered_certificate_proves_nothing_false(contract: Contract, data) -> None:
    ob = resolve_valid(contract)
    plan, _ = lower_valid(ob)
    certificate = certify(ob, plan)
    assert verify(ob, plan, certificate) == []
    endpoints = [*ob.producers, *ob.consumers, "nobody"]
    other = data.draw(tampered(certificate, endpoints))
    if verify(ob, plan, other) == []:
        # Other endpoints may prove the same; what is proven is never different.
        assert (other.footprint, other.scope) == (certificate.footprint, certificate.scope)
        assert set(other.crossing) <= set(ob.demanded)


@given(valid_contracts(), st.data())
def test_a_tampered_plan_is_refused(contract: Contract, data) -> None:
    ob = resolve_valid(contract)
    plan, report = lower_valid(ob)
    certificate = certify(ob, plan)
    other = data.draw(plans(contract))
    if other == plan:
        return
    assert "made for another contract or plan" in verify(ob, other, certificate)
    signed = replace(certificate, plan=digest(other))
    if verify(ob, other, signed) == []:
        assert footprint_of(ob, other.ops) == report.footprint


@given(valid_contracts())
def test_a_dearer_plan_gets_no_certificate(contract: Contract) -> None:
    ob = resolve_valid(contract)
    plan, report = lower_valid(ob, REFERENCE)
    best = lower_valid(ob)[1].footprint
    if report.footprint == best:
        assert certify(ob, plan).footprint == tuple(best)
    else:
        with pytest.raises(NotProven, match="the bound is"):
            certify(ob, plan)


@given(valid_contracts(), st.data())
def test_footprint_is_recomputed_alike(contract: Contract, data) -> None:
    ob = resolve_valid(contract)
    for plan in (lower_valid(ob)[0], lower_valid(ob, REFERENCE)[0]):
        assert recomputed(ob, plan) == tuple(footprint_of(ob, plan.ops))


@given(valid_contracts(producers=4, consumers=4, domains=3))
def test_certificate_and_oracle_agree(contract: Contract) -> None:
    ob = resolve_valid(contract)
    assert certify(ob, lower_valid(ob)[0]).footprint == tuple(figures(ob).optimum)


def large(consumers: int) -> Contract:
    """Token results of half as many producers in two classes, over eight remote domains."""
    producers = consumers // 2
    ids = [f"p{i}" for i in range(producers)]
    return Contract(
        name="large",
        value=Value(kind="logits", shape=(4, 1000), dtype="float32"),
        domains={"head": Domain(stack="cann")}
        | {f"tail{d}": Domain(stack="cuda") for d in range(8)},
        producers=tuple(Producer(id=p, domain="head") for p in ids),
        consumers=tuple(
            Consumer(id=f"c{i}", domain=f"tail{i // 4 % 8}", source=ids[i // 2], demanded=i % 3 > 0)
            for i in range(consumers)
        ),
        placement=Replicate(),
        facts=Facts(
            replica_classes=Fact(value=(tuple(ids[::2]), tuple(ids[1::2])), origin="graph"),
            demand=DemandFact(origin="runtime"),
            surface=Fact(value=Tokens(), origin="runtime"),
        ),
    )


def test_certificates_of_large_contracts_stay_small() -> None:
    ob = resolve_valid(large(3000))
    plan, _ = lower_valid(ob)
    certificate = certify(ob, plan)
    assert len(certificate.crossing) == 16
    assert verify(ob, plan, certificate) == []
    assert len(msgspec.json.encode(certificate)) < 2000


def test_the_check_is_short_and_shares_neither_checker_nor_lowerer_nor_oracle() -> None:
    source = Path(oracle.verify.__file__).read_text()
    assert len(source.splitlines()) < 100
    imported = {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert imported <= {
        "__future__",
        "collections",
        "oracle.certificate",
        "sembridge.layout",
        "sembridge.obligations",
        "sembridge.plan",
    }
