"""The protocol, over an engine that is recorded here: what is asked, in which order, and what
becomes of it. Nothing below is a measurement."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from experiments import engine as engines
from experiments import live
from experiments.documents import document
from experiments.ledger import Standing, ledger
from experiments.live import CAMPAIGNS, OWNER, PROJECTION, REPLICAS, compared, gains
from experiments.pairs import (
    METRICS,
    Ask,
    Run,
    Traffic,
    agreement,
    effects,
    measure,
    stable_rows,
    tasks,
    timed_rows,
)
from experiments.registry import Settings, load
from experiments.statistics import PAIRS


class Recorded:
    """An engine that takes ``1 / gain`` of the time where tokens are projected at the producer."""

    def __init__(self, gain: float = 1.5, noise: float = 0.01) -> None:
        self.gain, self.random, self.asked = gain, Random(7), list[Ask]()
        self.noise = noise

    def __call__(self, ask: Ask) -> Run:
        self.asked.append(ask)
        fast = ask.arm.result == "semantic" and ask.arm.forward == "semantic"
        seconds = (1 / self.gain if fast else 1.0) * (1 + self.noise * self.random.random())
        return Run(
            tokens=((1, 2, 3),) * ask.concurrency,
            steps=3,
            forward=Traffic(frames=3, framed_bytes=300, payload_bytes=156),
            result=Traffic(frames=3, framed_bytes=156 if fast else 9000, payload_bytes=12),
            seconds=seconds,
            ttft_s=(seconds / 3,) * ask.concurrency,
            tpot_s=(seconds / 3,) * ask.concurrency,
            latency_s=(seconds,) * ask.concurrency,
        )


def test_what_is_asked_is_fixed_before_the_runs():
    comparison = PROJECTION[0]
    planned = tasks(comparison, 5)
    assert planned == tasks(comparison, 5)
    measured = [t for t in planned if t.ask.purpose == "measure"]
    assert Counter(t.role for t in measured) == {"reference": PAIRS, "specialized": PAIRS}
    assert Counter(t.order for t in measured) == {"AB": PAIRS, "BA": PAIRS}
    for first, second in zip(measured[::2], measured[1::2], strict=True):
        assert first.pair == second.pair
        assert first.role == ("reference" if first.order == "AB" else "specialized")
        assert msgspec.structs.replace(first.ask, arm=second.ask.arm) == second.ask


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_arms_of_a_comparison_differ_in_plans_alone(name):
    for comparison in CAMPAIGNS[name].comparisons:
        one, other = comparison.reference, comparison.specialized
        assert one.arm != other.arm
        assert msgspec.structs.replace(one, arm=other.arm) == other


def test_probes_and_timers_are_kept_out_of_the_estimates():
    rows = measure(PROJECTION[:1], Recorded(), Settings(), "x")
    name = PROJECTION[0].name
    slow = [
        msgspec.structs.replace(r, run=msgspec.structs.replace(r.run, seconds=1e6))
        if r.task.ask.purpose != "measure"
        else r
        for r in rows
    ]
    assert len(slow) == 2 * PAIRS + 2
    assert effects(slow, name) == effects(rows, name)


def test_effects_are_those_of_the_engine():
    rows = measure(PROJECTION[:1], Recorded(gain=1.5), Settings(), "x")
    found = effects(rows, PROJECTION[0].name)
    assert found.keys() == METRICS.keys()
    assert found["throughput"].mean == pytest.approx(50, abs=2)
    assert found["latency_p95"].mean == pytest.approx(-33.3, abs=2)
    assert found["throughput"].positive == PAIRS


def test_an_interrupted_campaign_does_not_run_again_what_it_has(tmp_path):
    recorded = Recorded()
    settings = Settings(journals=tmp_path)
    whole = measure(PROJECTION[:1], recorded, settings, "x")
    journal = tmp_path / "x.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:5]))
    asked = len(recorded.asked)
    again = measure(PROJECTION[:1], recorded, settings, "x")
    assert len(recorded.asked) - asked == len(whole) - 5
    assert again[:5] == whole[:5]


def test_plans_that_disagree_in_tokens_or_traffic_fail_their_checks():
    rows = measure(PROJECTION[:1], Recorded(), Settings(), "x")
    name = PROJECTION[0].name
    assert all(check.ours == check.expected for check in agreement(rows, name))
    spoiled = msgspec.structs.replace(rows[1].run, tokens=((1, 2, 4),))
    wrong = [rows[0], msgspec.structs.replace(rows[1], run=spoiled), *rows[2:]]
    assert [c.ours == c.expected for c in agreement(wrong, name)] == [False, True]
    more = msgspec.structs.replace(
        rows[5].run, forward=Traffic(frames=4, framed_bytes=1, payload_bytes=1)
    )
    wrong = [*rows[:5], msgspec.structs.replace(rows[5], run=more), *rows[6:]]
    assert [c.ours == c.expected for c in agreement(wrong, name)] == [True, False]


@pytest.mark.parametrize("gain", [1.5, 0.5])
def test_campaigns_answer_every_claim_of_theirs_by_direction(gain):
    campaign = CAMPAIGNS["figure3"]
    result = compared("figure3", campaign.comparisons, Settings(), campaign.claims, Recorded(gain))
    lines = {c.name: c for c in document(result, Settings(), 0.0).lines if c.paper is not None}
    for claim in ledger().values():
        if claim.experiment == "figure3" and str(claim.class_) == "order":
            wanted = Standing.HOLDS if gain > 1 else Standing.DIFFERS
            assert lines[claim.name].standing is wanted, claim.name
    assert lines["figure3.fresh_process_pairs"].standing is Standing.HOLDS


def test_noise_decides_nothing():
    class Noise(Recorded):
        def __call__(self, ask):
            ran = super().__call__(ask)
            return msgspec.structs.replace(ran, seconds=1 + self.random.random())

    campaign = CAMPAIGNS["owner"]
    result = compared("owner", campaign.comparisons, Settings(), campaign.claims, Noise())
    lines = document(result, Settings(), 0.0).volatile.claims
    assert {c.standing for c in lines} <= {Standing.UNDECIDED, Standing.HOLDS, Standing.DIFFERS}
    assert Standing.UNDECIDED in {c.standing for c in lines}


def test_what_varies_stands_in_the_volatile_part():
    one, two = (
        compared("owner", OWNER, Settings(), CAMPAIGNS["owner"].claims, Recorded(noise=n))
        for n in (0.01, 0.2)
    )
    assert one.records == two.records and one.tables == two.tables and one.checks == two.checks
    assert one.volatile.records != two.volatile.records
    rows = measure(OWNER, Recorded(), Settings(), "x")
    assert len(stable_rows(rows)) == len(timed_rows(rows)) == len(rows)


def test_the_replica_campaigns_report_the_bootstrap():
    rows = measure(REPLICAS[:1], Recorded(), Settings(), "x")
    name = REPLICAS[0].name
    found = {name: effects(rows, name)}
    measured = gains("p", bootstrap=True)(found)[f"p.{name}"]
    assert measured.ci95 == found[name]["throughput"].bootstrap


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_without_an_engine_nothing_passes(name, monkeypatch):
    monkeypatch.setattr(live, "engine", lambda: None)
    doc = document(load()[name].run(Settings()), Settings(), 0.0)
    assert {c.standing for c in doc.lines} <= {Standing.NOT_RUN, Standing.NOT_VALIDATED}
    assert {c.note for c in doc.lines if c.standing is Standing.NOT_RUN} == {engines.LIVE}
