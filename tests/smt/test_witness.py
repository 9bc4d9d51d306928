"""A counterexample is small, replays, and is not believed when it is tampered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from oracle.samples import draw_pairs
from oracle.smt.witness import Witness, decode_witness, find_witness, replay
from sembridge import io
from sembridge.check import check
from sembridge.errors import BadInput
from sembridge.layout import Shard
from sembridge.lowering import lower
from sembridge.plan import Broadcast, Project, Send
from sembridge.verdict import Verdict

from .corpus import MATRIX, lanes, plan, reducible_again, sum_of, tokens

WITNESSES = sorted((Path(__file__).parent / "witnesses").glob("*.json"))


def swapped() -> Witness:
    contract = lanes(3, placement=Shard(dim=0), shape=(64, 5))
    crossed = [Send(src=f"p{i}", dst=f"c{(i + 1) % 3}") for i in range(3)]
    found = find_witness(contract, plan(contract, *crossed))
    assert found is not None
    return found


def test_it_is_shrunk_and_shows_both_values() -> None:
    found = swapped()
    assert len(found.plan.ops) == 1
    assert (len(found.contract.producers), len(found.contract.consumers)) == (2, 1)
    assert found.contract.value.shape == (1,)
    assert found.shows.kind == "difference"
    assert found.shows.observed != found.shows.expected
    assert replay(found).confirmed


def test_a_projected_difference_is_made_concrete() -> None:
    facts = msgspec.structs.replace(sum_of(2), surface=tokens())
    contract = lanes(placement=MATRIX["partial"].placement, facts=facts, shape=(4, 9))
    early = plan(
        contract,
        Project(projection="argmax", at="p0"),
        Send(src="p0", dst="c0", surface="tokens"),
        Broadcast(src="c0", dsts=("c1",), surface="tokens"),
    )
    found = find_witness(contract, early)
    assert found is not None
    assert (found.shows.kind, found.shows.surface) == ("difference", "tokens")
    assert replay(found).confirmed


def test_a_legal_plan_has_none() -> None:
    for contract in MATRIX.values():
        assert find_witness(contract, lower(contract)) is None


def test_a_plan_may_be_illegal_without_a_wrong_value() -> None:
    contract = MATRIX["replica"]
    twice = plan(contract, *lower(contract).ops, Send(src="p1", dst="c0"))
    found = find_witness(contract, twice)
    assert found is not None
    assert (found.shows.kind, found.shows.rule) == ("condition", "redelivery")
    assert replay(found).confirmed


def test_every_random_illegal_plan_has_one_that_replays() -> None:
    for contract, drawn in draw_pairs(11, 60):
        found = find_witness(contract, drawn)
        assert (found is None) == (check(contract, drawn).verdict is Verdict.LEGAL)
        if found is not None:
            assert replay(decode_witness(io.encode(found))).confirmed
            assert check(found.contract, found.plan).verdict is Verdict.ILLEGAL


def tampered(**change: Any) -> Witness:
    found = swapped()
    return msgspec.structs.replace(found, shows=msgspec.structs.replace(found.shows, **change))


@pytest.mark.parametrize(
    "change", [{"observed": (5,)}, {"expected": (5,)}, {"kind": "fault"}, {"endpoint": "c9"}]
)
def test_a_witness_that_claims_something_else_is_not_confirmed(change: dict[str, Any]) -> None:
    assert not replay(tampered(**change)).confirmed


@pytest.mark.parametrize(
    ("tensors", "path"),
    [
        ({"p0": (1, 2)}, "$.tensors['p0']"),
        ({"c0": (1,)}, "$.tensors['c0']"),
        ({"p0": (10**9,)}, "$.tensors['p0']"),
    ],
)
def test_a_witness_file_is_checked_before_it_runs(
    tensors: dict[str, tuple[int, ...]], path: str
) -> None:
    found = msgspec.structs.replace(swapped(), tensors=tensors)
    with pytest.raises(BadInput) as error:
        decode_witness(io.encode(found))
    assert error.value.path == path


@pytest.mark.parametrize("path", WITNESSES, ids=lambda path: path.stem)
def test_witnesses_of_past_faults_still_show_what_they_showed(path: Path) -> None:
    witness = decode_witness(path.read_bytes())
    assert replay(witness).confirmed
    assert check(witness.contract, witness.plan).verdict is Verdict.ILLEGAL


def test_the_doubled_sum_shows_in_a_run() -> None:
    found = find_witness(*reducible_again(), shrink_it=False)
    assert found is not None
    assert (found.shows.kind, found.shows.rule) == ("difference", "reduction")
    assert replay(found).confirmed
