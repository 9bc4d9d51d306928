"""Every operator's example ends as its entry says; the paper's eight are rejected."""

from __future__ import annotations

import pytest

from experiments.mutations import byte_only_proposals, eight, subject_of
from mutations.campaign import Class, judge_mutant, mutant_of
from mutations.operators import OPERATORS, PAPER_EIGHT, STILLBORN
from sembridge.obligations import CONTRACT_RULES
from sembridge.rules import RULES

CATALOGUE = (
    *("pytorch #149768", "#163193", "PR #165962", "PR #159856", "autoparallel #517"),
    *("pytorch PR #172041", "pytorch PR #173936", "pytorch #168134", "#179502", "pytorch #166598"),
    *("sglang PR #20834", "TensorRT-LLM PR #12623", "vllm PR #33701", "vllm-omni PR #7393"),
    *("vllm PR #40749", "#44697", "vllm #57755", "PR #49443", "tenstorrent/vllm PR #396"),
    *("vllm PR #52284", "sglang PR #7356", "vllm PR #28617", "PR #38199", "pytorch #126795"),
    "vllm's reduced sampling gate",
)
"""Public bugs whose kind is an operator here; lifecycle and frames need a transport."""


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_example_ends_as_the_entry_says(operator):
    subject = subject_of(operator.example)
    record = judge_mutant(subject, mutant_of(operator.example, subject))
    if operator.expects == (STILLBORN,):
        assert record.outcome is Class.STILLBORN
    elif not operator.expects:
        assert record.outcome is Class.EQUIVALENT
        assert record.why
    elif record.outcome is Class.OVERSTRICT:
        assert record.why, "a stated condition of an op asks for it"
        assert set(record.rules) & set(operator.expects)
    else:
        assert record.outcome is Class.KILLED
        assert record.wrong, "wrong by another judge than the checker"


def test_expected_rules_exist():
    known = {r.name for r in RULES} | {name for name, _ in CONTRACT_RULES} | {STILLBORN}
    assert {rule for o in OPERATORS.values() for rule in o.expects} <= known


def test_every_kind_of_public_bug_has_an_operator():
    sources = " ".join(o.source for o in OPERATORS.values())
    assert [bug for bug in CATALOGUE if bug not in sources] == []


def test_the_papers_eight_are_rejected_each_for_its_rule():
    records = eight()
    assert len(records) == len(PAPER_EIGHT) == 8
    assert {r.outcome for r in records.values()} == {Class.KILLED}
    told = {name: set(r.rules) for name, r in records.items()}
    for name, rules in told.items():
        obligation = name.partition(":")[0]
        wanted = {
            "demand": {"coverage"},
            "reduction": {"completion", "reduction"},
            "substitution": {"substitution"},
            "ownership": {"authority"},
            "domain locality": {"locality"},
            "execution identity": {"identity"},
        }[obligation]
        assert rules & wanted, name


def test_byte_only_proposals():
    proposals = byte_only_proposals()
    assert [r.outcome for r in proposals] == [Class.KILLED] * 40
    assert all(r.rules and r.wrong for r in proposals)
