"""Campaigns: sound, replayable, the same bytes on every engine; planted judges are noticed."""

from __future__ import annotations

import re
from unittest.mock import patch

import pytest

import mutations.campaign as campaign
from experiments.mutations import subject_of, subjects
from mutations.campaign import (
    Class,
    Options,
    Task,
    canonical,
    choose_operators,
    generate,
    judge_mutant,
    mutant_of,
    mutants_of,
    run,
    subject_named_in,
)
from mutations.operators import OPERATORS
from mutations.report import jsonl, records_of, summarize
from sembridge.check import Checker, Report, check
from sembridge.errors import BadInput
from sembridge.footprint import Footprint
from sembridge.lowering import lower
from sembridge.plan import Broadcast, Send
from sembridge.verdict import Verdict, Violation
from tests.core.build import plan
from tests.mutations.samples import some_campaign, some_subjects


def two():
    return list(some_subjects())[:2]


def test_nothing_wrong_is_accepted_and_no_rejection_lacks_a_reason():
    summary = summarize(some_campaign())
    assert summary.sound, summary
    assert summary.score == 100
    assert summary.classes[Class.UNKNOWN] == 0
    otherwise = [r for r in records_of(some_campaign()) if r.outcome is Class.KILLED_OTHERWISE]
    assert all("-empty." in r.id for r in otherwise), "where slices without elements are complete"
    assert sum(summary.classes.values()) == summary.mutants > 5_000


def test_every_operator_makes_mutants_that_are_not_the_original():
    used = {name for r in records_of(some_campaign()) for name in r.operators}
    assert used == set(OPERATORS)
    for subject in two():
        for mutant in mutants_of(subject, OPERATORS):
            assert (mutant.contract, mutant.plan) != (subject.contract, subject.plan)


def test_operators_of_one_kind_change_one_side():
    for subject in two():
        for mutant in mutants_of(subject, OPERATORS):
            on = OPERATORS[mutant.operators[0]].on
            assert (mutant.plan == subject.plan) == (on == "contract")


@pytest.mark.parametrize("order", [1, 2])
def test_an_id_replays_its_mutant(order):
    for subject in two():
        mutants = generate(Task(subject=subject, options=Options(order=order, limit=20, seed=3)))
        assert len(mutants) == 20
        for mutant in mutants:
            assert subject_named_in(mutant.id) == subject.name
            assert mutant_of(mutant.id, subject) == mutant
            assert len(mutant.operators) == order


def test_equal_seeds_give_equal_bytes_on_every_engine(tmp_path):
    options = Options(limit=15, seed=7, order=2)
    serial = jsonl(records_of(run(two(), options, engine="serial")))
    assert jsonl(records_of(run(two(), options, engine="local", jobs=2))) == serial
    assert (
        jsonl(records_of(run(two(), Options(limit=15, seed=8, order=2), engine="serial"))) != serial
    )


def test_a_campaign_resumes_from_its_journal(tmp_path, monkeypatch):
    journal, options = tmp_path / "journal", Options(limit=5)
    whole = run(two(), options, engine="serial", journal=journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1][:20])
    judged: list[str] = []
    original = campaign.judge_subject

    def counted(task):
        judged.append(task.subject.name)
        return original(task)

    monkeypatch.setattr(campaign, "judge_subject", counted)
    assert run(two(), options, engine="serial", journal=journal) == whole
    assert judged == [two()[1].name]
    with pytest.raises(BadInput):
        run(two(), Options(limit=6), engine="serial", journal=journal)


def _report(*violations):
    def report(contract, plan):
        verdict = Verdict.ILLEGAL if violations else Verdict.LEGAL
        return Report(verdict=verdict, footprint=Footprint(), violations=violations)

    return report


def test_a_checker_that_accepts_everything_is_noticed():
    with patch.object(campaign, "check", _report()):
        summary = summarize(run(two(), Options(checkers=False), engine="serial"))
    assert summary.classes[Class.MISSED] > 0
    assert summary.score == 0
    assert not summary.sound


def test_a_checker_that_rejects_everything_is_noticed():
    refusal = Violation(rule="coverage", message="no")
    with patch.object(campaign, "check", _report(refusal)):
        summary = summarize(run(two(), Options(checkers=False), engine="serial"))
    assert len(summary.insane) == len(two())
    assert summary.unexplained > 0
    assert not summary.sound


def test_a_crash_is_an_error_and_never_a_kill():
    def crash(contract, plan):
        raise RecursionError("deep")

    subject = two()[0]
    mutant = next(mutants_of(subject, ["drop-delivery"]))
    with patch.object(campaign, "check", crash):
        record = judge_mutant(subject, mutant)
    assert record.outcome is Class.ERROR
    assert record.why == "RecursionError: deep"


def test_equivalents_say_why():
    equivalents = [r for r in records_of(some_campaign()) if r.outcome is Class.EQUIVALENT]
    assert {r.why for r in equivalents} == {"the same program up to order", "executed equal"}
    assert all(r.execution == "equal" and not r.rules and not r.wrong for r in equivalents)


def test_canonical_plans_forget_order_and_nothing_else():
    send, cast = Send(src="p0", dst="c0"), Broadcast(src="c0", dsts=("c1", "c2"))
    turned = Broadcast(src="c0", dsts=("c2", "c1"))
    assert canonical(plan(send, cast)) == canonical(plan(turned, send))
    assert canonical(plan(send, cast)) != canonical(plan(send, cast, cast))
    assert canonical(plan(send)) != canonical(plan(send, tag=None))
    assert canonical(plan(send)) != canonical(plan(Send(src="p0", dst="c0", surface="tokens")))
    assert canonical(plan(send)) != canonical(plan(send, name="another"))


def test_real_edges_are_mutated_over_fewer_columns_and_the_same_plan():
    from experiments.real_edges import contracts

    full = {c.name: c for c in contracts().values()}
    for subject in subjects("edges").values():
        if subject.name.endswith("/semantic"):
            whole = full[subject.contract.name]
            assert lower(whole) == subject.plan
            assert whole.facts == subject.contract.facts
            assert whole.value.dtype == subject.contract.value.dtype
            assert subject.contract.value.shape[-1] <= 24


@pytest.mark.parametrize(
    "mutant_id",
    [
        "nonsense",
        "matrix/none:drop-delivery:0",
        "matrix/replica.tp2.d1.v0/semantic:no-operator:0",
        "matrix/replica.tp2.d1.v0/semantic:drop-delivery:99",
        "matrix/replica.tp2.d1.v0/semantic:drop-delivery:0+drop-delivery:99",
    ],
)
def test_ids_of_nothing_are_bad_input(mutant_id):
    with pytest.raises(BadInput, match=re.compile("no |is no")):
        mutant_of(mutant_id, subject_of(mutant_id))


def test_another_subjects_id_is_bad_input():
    first, second = two()
    mutant = next(mutants_of(first, OPERATORS))
    with pytest.raises(BadInput, match="no mutant of"):
        mutant_of(mutant.id, second)


def test_operators_by_name():
    assert choose_operators([]) == tuple(OPERATORS)
    assert choose_operators(["stale-tag", "drop-delivery"]) == ("drop-delivery", "stale-tag")
    with pytest.raises(BadInput, match="no operator 'x'"):
        choose_operators(["x"])


def test_the_checker_under_test_is_the_whole_one():
    subject = two()[0]
    assert check(subject.contract, subject.plan).verdict is Verdict.LEGAL
    assert Checker()._rules is None
