"""The report's page and data: the checker's own words, names kept inert, bytes that are stable."""

from __future__ import annotations

import json
import re
from html import escape
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.ledger import ledger
from mutations.operators import OPERATORS, PAPER_EIGHT
from paper_figs.report.explorer import MAX_SHOWN, Given, case_of, cases, read_case, run_of, steps
from paper_figs.report.page import page, read_results
from sembridge import io
from sembridge.check import check
from sembridge.contract import Consumer
from sembridge.draw import MAX_DRAWN
from sembridge.errors import BadInput
from sembridge.obligations import resolve
from sembridge.verdict import Verdict
from tests.paper_figs.sample import CASES, HOSTILE, SHARED, hostile, sample_cases, sample_page
from tests.strategies import plans, valid_contracts


@pytest.fixture(scope="module")
def sampled():
    return sample_cases()


@pytest.fixture(scope="module")
def html(sampled):
    return sample_page(sampled).decode()


@pytest.fixture(scope="module")
def everything():
    return cases([read_case(CASES / SHARED[0])])


@given(st.data())
def test_steps_are_the_checkers(data):
    contract = data.draw(valid_contracts())
    plan, ob = data.draw(plans(contract)), resolve(contract)
    taken = list(steps(ob, plan))
    assert len(taken) == len(plan.ops) + 2
    said = tuple(v for step in taken for v in step.violations)
    assert said == check(contract, plan).violations


def test_what_is_shown_is_the_checkers_verdict(sampled):
    for case in sampled:
        for run in case.runs.values():
            if run.plan is not None:
                report = check(case.contract, run.plan)
                assert (run.verdict, run.violations) == (report.verdict, report.violations)
                assert run.footprint == tuple(report.footprint)


def test_a_legal_plan_ends_with_every_observation_held(sampled):
    for case in sampled:
        for run in case.runs.values():
            if run.verdict is Verdict.LEGAL:
                ob = resolve(case.contract)
                held = {(h.endpoint, h.surface): h for step in run.steps for h in step.held}
                for consumer in ob.demanded:
                    for surface in ob.observed:
                        assert held[consumer, surface].spans is None
                        assert held[consumer, surface].complete


def test_a_step_lists_what_it_changed_and_no_more():
    given_ = read_case(CASES / "forward-representative")
    run = run_of(given_.contract, given_.plan)
    start, *ops, observed = run.steps
    assert {h.endpoint for h in start.held} == {p.id for p in given_.contract.producers}
    assert all(h.sources == h.issuers == (h.endpoint,) for h in start.held)
    assert [{h.endpoint for h in step.held} for step in ops] == [{"c0"}, {"c1", "c2", "c3"}]
    assert observed.held == ()


def test_the_eight_mutations_are_refused_each_for_its_rule(everything):
    found = {m.id: m for case in everything for m in case.mutants}
    for example in PAPER_EIGHT.values():
        run = found[example].run
        operator = OPERATORS[example.rsplit(":", 2)[1]]
        assert run.verdict is Verdict.ILLEGAL
        assert {v.rule for v in run.violations} & set(operator.expects)
        assert run.counterexample is not None


def test_counterexamples_show_what_is_wrong(sampled):
    kinds = set()
    for case in sampled:
        for run in [*case.runs.values(), *(m.run for m in case.mutants)]:
            assert (run.counterexample is None) == (
                run.verdict is Verdict.LEGAL or run.plan is None
            )
            if run.counterexample:
                shows = run.counterexample.shows
                kinds.add(shows.kind)
                if shows.kind == "difference":
                    assert shows.observed != shows.expected
                    assert len(shows.observed) <= MAX_SHOWN
    assert kinds == {"difference", "missing", "fault", "condition", "rejected"}


def test_what_is_too_large_to_show_is_refused_at_once(sembridge, tmp_path):
    one = hostile().contract
    consumer = one.consumers[0]
    many = tuple(
        Consumer(id=f"x{i}", domain=consumer.domain, source=consumer.source, demanded=True)
        for i in range(MAX_DRAWN)
    )
    large = msgspec.structs.replace(one, consumers=many)
    with pytest.raises(BadInput, match="to show"):
        case_of("given", Given(contract=large))
    io.write(tmp_path / "contract.json", io.encode(large))
    ran = sembridge("report", "-o", tmp_path / "x.html", "--case", tmp_path)
    assert ran.code == 2
    assert f"{tmp_path}: more than {MAX_DRAWN}" in ran.err
    assert not (tmp_path / "x.html").exists()


VOLATILE = re.compile("<!-- volatile -->.*?<!-- /volatile -->", re.DOTALL)


class Page(HTMLParser):
    """Elements by name, event handlers, and addresses."""

    def __init__(self, text):
        super().__init__()
        self.names, self.handlers, self.addresses, self.ids = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        for name, value in attrs:
            if name.startswith("on"):
                self.handlers.append(name)
            if name in ("src", "href", "action"):
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)


def test_hostile_names_make_no_element_and_no_handler(html):
    found = Page(html)
    assert found.names.count("script") == 2
    assert found.names.count("svg") == 0
    assert not found.handlers
    assert all(a.startswith(("#", "data:")) for a in found.addresses)
    assert len(found.ids) == len(set(found.ids))
    for name in HOSTILE[:4]:
        assert name not in html


def test_data_survives_its_escaping(html, sampled):
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert json.loads(data[1]) == json.loads(io.encode(sampled))


def test_without_script_the_page_has_claims_tables_and_verdicts(html):
    static = html.partition('<script type="application/json"')[0]
    for text in ("reported by the paper", "✗ differs", "– not validated", "Long", "✗ surface"):
        assert text in static
    assert all(escape(claim.says) in static for claim in ledger().values())


def test_the_same_input_gives_the_same_bytes(html):
    again = sample_page(sample_cases()).decode()
    assert VOLATILE.sub("", again) == VOLATILE.sub("", html)


def test_the_command_writes_one_bounded_page(sembridge, tmp_path, request):
    root = request.config.rootpath
    target = tmp_path / "report.html"
    ran = sembridge(
        "report", "-o", target, "--results", root / "results", "--case", CASES / SHARED[0]
    )
    assert (ran.code, ran.out) == (0, "")
    assert "written to" in ran.err
    page_ = target.read_bytes()
    assert len(page_) < 8 * 2**20
    assert page_.count(b"<details") > 20


def test_what_times_decide_stands_apart(html, sampled):
    slower = sample_page(sampled, seconds=2.5).decode()
    assert slower != html
    assert VOLATILE.sub("", slower) == VOLATILE.sub("", html)
    assert "its A100 host" not in VOLATILE.sub("", html)


def test_no_results_and_broken_results(sembridge, tmp_path):
    (tmp_path / "table2.json").write_text('{"format": "sembridge.result/2", "name": 3}')
    ran = sembridge("report", "-o", tmp_path / "x.html", "--results", tmp_path, "--quiet")
    assert ran.code == 2
    assert "table2.json" in ran.err
    (tmp_path / "table2.json").unlink()
    assert read_results(tmp_path) == []
    assert b"No results here" in page([], [], [])
    assert b"not run" in page([], [], [])
