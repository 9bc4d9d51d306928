"""The judges agree, and judges that are wrong on purpose are caught."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from experiments.judges import edge_pairs, family_pairs, matrix_pairs, sanity
from experiments.matrix import matrix
from oracle.judges import JUDGES, clash, compare
from oracle.samples import draw_pairs
from sembridge.check import check
from sembridge.contract import Fact, Facts
from sembridge.errors import BadInput
from sembridge.lowering import lower
from sembridge.plan import Broadcast, Part, Project, Reduce, Send
from sembridge.surfaces import Tokens
from sembridge.verdict import Verdict

from .corpus import lanes, plan, reducible_again


def test_they_agree_on_the_matrix() -> None:
    found = compare(matrix_pairs())
    assert (found.disagreements, found.shown) == (0, ())
    assert found.pairs == 72 * 10


def test_they_agree_on_the_real_edges() -> None:
    assert compare(itertools.islice(edge_pairs(), 0, None, 5)).disagreements == 0


def test_they_agree_on_short_sequences() -> None:
    assert compare(itertools.islice(family_pairs(), 0, None, 23)).disagreements == 0


def test_they_agree_on_random_pairs_both_legal_and_illegal() -> None:
    found = compare(draw_pairs(7, 800))
    assert found.shown == ()
    verdicts = {opinions[0]: 0 for opinions, _ in found.opinions}
    for opinions, n in found.opinions:
        verdicts[opinions[0]] += n
    assert min(verdicts["legal"], verdicts["illegal"]) > 100


def test_they_agree_on_the_doubled_sum() -> None:
    (opinions, count), *others = compare([reducible_again()]).opinions
    assert (opinions[:3], count, others) == (("illegal", "illegal", "differs"), 1, [])


def test_they_agree_that_an_empty_broadcast_to_a_holder_is_a_redelivery() -> None:
    contract = lanes(2, shape=(1,))
    nothing = Send(src="p0", dst="c0", part=Part(index=1, of=2))
    served = (Send(src="p1", dst="c1"), Send(src="p0", dst="c0", part=Part(index=0, of=2)))
    again = Broadcast(src="c0", dsts=("c1",))
    fine = plan(contract, nothing, *served)
    repeated = plan(contract, nothing, served[0], again, served[1])
    found = compare([(contract, fine), (contract, repeated)])
    assert [(said[:3], n) for said, n in found.opinions] == [
        (("illegal", "illegal", "equal"), 1),
        (("legal", "legal", "equal"), 1),
    ]


def test_judges_that_are_wrong_on_purpose_are_caught() -> None:
    pairs = list(itertools.islice(matrix_pairs(), 0, None, 7))
    legal = sum(check(*pair).verdict is Verdict.LEGAL for pair in pairs)
    assert 0 < legal < len(pairs)
    assert sanity(pairs) == {"accept-all": len(pairs) - legal, "reject-all": legal}


def test_a_disagreement_is_shown_on_a_smaller_pair() -> None:
    pairs = [p for p in matrix_pairs() if check(*p).verdict is Verdict.ILLEGAL][-1:]
    (shown,) = compare(pairs, ("checker", "accept-all")).shown
    assert shown.opinions == {"checker": "illegal", "accept-all": "legal"}
    assert len(shown.plan.ops) == 0


@pytest.mark.parametrize("judges", [("checker",), ("checker", "nobody")])
def test_a_comparison_needs_two_judges_that_exist(judges: tuple[str, ...]) -> None:
    with pytest.raises(BadInput):
        compare([], judges)


def test_unknown_clashes_with_nothing() -> None:
    assert not clash(["unknown", "legal", "equal"])
    assert not clash(["unknown", "illegal", "differs"])


def test_the_oracle_speaks_of_its_family_and_of_nothing_else() -> None:
    cases = {case.id: case.contract for case in matrix()}
    contract = cases["replica.tp2.d1.v0"]
    says = JUDGES["oracle"].says
    plan = lower(contract)
    assert says(contract, plan) == "legal"
    assert says(contract, replace(plan, ops=plan.ops[::-1])) == "not listed"
    assert says(contract, replace(plan, tag=None)) == "not run"
    assert says(cases["replica.tp4.d1.v0"], lower(cases["replica.tp4.d1.v0"])) == "not run"


def test_a_whole_broadcast_to_a_holder_of_nothing_is_a_redelivery() -> None:
    contract = lanes(2, shape=(3,))
    nothing = Send(src="p1", dst="c1", part=Part(index=3, of=4))
    again = plan(contract, Send(src="p0", dst="c0"), nothing, Broadcast(src="c0", dsts=("c1",)))
    ((said, _),) = compare([(contract, again)]).opinions
    assert said[:2] == ("illegal", "illegal")


def test_a_reduction_of_results_that_nothing_registers_is_judged_and_not_a_crash() -> None:
    contract = lanes(2, shape=(1, 1), facts=Facts(surface=Fact(value=Tokens(), origin="runtime")))
    projected = [Project(projection="argmax", at=p) for p in ("p0", "p1")]
    first = Reduce(operator="first", sources=("p0", "p1"), targets=("c0",), surface="tokens")
    ((said, _),) = compare([(contract, plan(contract, *projected, first))]).opinions
    assert said[:2] == ("illegal", "illegal")
