"""The questions are what other solvers are given, and answers are never merged."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from experiments.matrix import matrix
from oracle.smt import solver
from oracle.smt.model import encode
from oracle.smt.prove import prove
from oracle.smt.second import confirm
from oracle.smt.solver import Answer, Outcome, Script
from sembridge.lowering import lower
from sembridge.obligations import resolve
from sembridge.plan import Send
from sembridge.verdict import Verdict

from .corpus import MATRIX, plan

TRIVIAL = Script(
    logic="QF_LIA",
    body=("(declare-const x Int)", "(assert (> x 0))"),
    facts={"small": ("(< x 1)",), "even": ("(= (mod x 2) 0)",)},
)


def test_facts_are_assumed_by_name() -> None:
    assert solver.decide(TRIVIAL).answer is Answer.UNSAT
    assert solver.decide(TRIVIAL, ["even"]).answer is Answer.SAT
    assert solver.core(TRIVIAL) == ("small",)


def test_a_model_gives_the_constants() -> None:
    found = solver.decide(TRIVIAL.with_claims("(= x 4)"), [])
    assert found == Outcome(answer=Answer.SAT, constants={"x": 4})


def test_the_running_z3_is_in_the_tested_range() -> None:
    def number(text: str) -> tuple[int, ...]:
        return tuple(int(n) for n in text.split(".")[:2])

    running = number(solver.version().split()[1])
    assert number(solver.TESTED[0]) <= running < number(solver.TESTED[1])


def test_a_dumped_question_is_the_one_that_was_asked(tmp_path: Path) -> None:
    contract = MATRIX["replica"]
    lowered = lower(contract)
    prove(contract, lowered, dump=tmp_path)
    dumped = (tmp_path / "legality.smt2").read_text()
    assert dumped == solver.smtlib(encode(resolve(contract), lowered).script)
    assert dumped.startswith("(set-logic QF_UFLIA)\n")
    assert "pbeq" not in dumped


@pytest.mark.parametrize("broken", [False, True])
def test_cvc5_agrees_on_the_whole_matrix(broken: bool) -> None:
    pytest.importorskip("cvc5")
    expected = Answer.SAT if broken else Answer.UNSAT
    for case in matrix():
        lowered = lower(case.contract)
        ops = lowered.ops[:-1] if broken else lowered.ops
        question = solver.smtlib(encode(resolve(case.contract), plan(case.contract, *ops)).script)
        assert confirm(question, proof=not broken) is expected, case.id


def test_hostile_names_stay_inside_the_comments() -> None:
    # Files cannot carry a line break in a name; a contract that was built can.
    odd, built = 'p0\n(assert false) "|;', MATRIX["replica"]
    named = {"p0": odd}
    assert built.facts.replica_classes is not None
    contract = replace(
        built,
        producers=tuple([replace(p, id=named.get(p.id, p.id)) for p in built.producers]),
        consumers=tuple(
            [replace(c, source=named.get(c.source, c.source)) for c in built.consumers]
        ),
        facts=replace(
            built.facts,
            replica_classes=replace(
                built.facts.replica_classes,
                value=tuple(
                    [tuple([named.get(p, p) for p in c]) for c in built.facts.replica_classes.value]
                ),
            ),
        ),
    )
    lowered = lower(contract)
    assert prove(contract, lowered).verdict is Verdict.LEGAL
    wrong = plan(contract, Send(src=odd, dst="c0"))
    assert prove(contract, wrong).verdict is Verdict.ILLEGAL
