"""One list of results, whatever ran the tasks, in whatever order, however often interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sembridge.campaign import run_campaign
from sembridge.errors import BadInput

TASKS = list(range(23))


def square(task: int) -> dict[str, int]:
    return {"task": task, "square": task * task}


def refuse_seven(task: int) -> int:
    if task == 7:
        raise ArithmeticError("seven")
    return task


@pytest.mark.parametrize("engine", ["serial", "local"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_results_are_in_task_order_on_every_engine(engine, jobs) -> None:
    found = run_campaign(TASKS, square, key=str, engine=engine, jobs=jobs)
    assert found == [square(t) for t in TASKS]


def test_results_are_what_json_keeps_of_them() -> None:
    assert run_campaign([1], lambda t: (t, t), key=str, engine="serial") == [[1, 1]]
    typed = run_campaign([1], lambda t: (t, t), key=str, engine="serial", result=tuple[int, int])
    assert typed == [(1, 1)]


def test_journal_resumes_after_a_line_cut_short(tmp_path: Path) -> None:
    journal = tmp_path / "campaign.jsonl"
    full = run_campaign(TASKS, square, key=str, engine="serial", journal=journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:9]) + lines[9][:5])
    ran = []
    resumed = run_campaign(
        TASKS, lambda t: ran.append(t) or square(t), key=str, engine="serial", journal=journal
    )
    assert resumed == full
    assert ran == TASKS[9:]
    assert sorted(journal.read_bytes().splitlines()) == sorted(line.strip() for line in lines)


def test_interrupted_campaign_keeps_what_was_done(tmp_path: Path) -> None:
    journal = tmp_path / "campaign.jsonl"
    with pytest.raises(ArithmeticError) as caught:
        run_campaign(TASKS, refuse_seven, key=str, engine="serial", jobs=1, journal=journal)
    assert "in task 7" in caught.value.__notes__
    kept = [json.loads(line)["key"] for line in journal.read_text().splitlines()]
    assert kept == [str(t) for t in range(7)]


def test_progress_reaches_the_total() -> None:
    seen = []
    run_campaign(
        TASKS, square, key=str, engine="serial", progress=lambda done, of: seen.append((done, of))
    )
    assert seen[0] == (0, 23)
    assert seen[-1] == (23, 23)
    assert seen == sorted(seen)


def test_bad_campaigns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such engine"):
        run_campaign(TASKS, square, key=str, engine="ray")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="one key"):
        run_campaign([1, 1], square, key=str, engine="serial")
    with pytest.raises(BadInput, match="0 jobs"):
        run_campaign(TASKS, square, key=str, jobs=0)
    with pytest.raises(BadInput, match="no scheduler"):
        run_campaign(TASKS, square, key=str, engine="serial", scheduler="tcp://127.0.0.1:1")
    journal = tmp_path / "other.jsonl"
    journal.write_text('{"key":"elsewhere","result":1}\n')
    with pytest.raises(BadInput, match="none of this campaign's"):
        run_campaign(TASKS, square, key=str, engine="serial", journal=journal)
    journal.write_text("not json\n")
    with pytest.raises(BadInput, match="line 1"):
        run_campaign(TASKS, square, key=str, engine="serial", journal=journal)


def test_dask_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        found = run_campaign(
            TASKS, square, key=str, engine="dask", scheduler=cluster.scheduler_address
        )
    assert found == run_campaign(TASKS, square, key=str, engine="serial")
