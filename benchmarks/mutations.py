"""How fast mutants are judged, beside how fast cosmic-ray judges mutants of the same checker.

Run with ``python -m benchmarks.mutations``; the peer needs ``pip install cosmic-ray``. The two
rates are of different things (a plan judged by a function, code judged by a test run) and stand
side by side for context only. Campaign times are of one machine and its load.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.record import machine, pipe_table, save
from experiments.mutations import SOURCES, subjects
from mutations.campaign import Mutant, Options, judge_mutant, mutants_of, run
from mutations.code import QUICK, code_mutants, judge_code
from mutations.operators import OPERATORS
from mutations.report import records_of, summarize
from mutations.subjects import Subject
from mutations.truth import prover_installed
from sembridge.check import CHECKER
from sembridge.obligations import Obligations, resolve

ROOT = Path(__file__).parent.parent
CHECKED_PER_SECOND = 5_000
CAMPAIGN_SECONDS = 120
PEER_MODULE = "sembridge.guards"
PEER_MUTANTS = 12
COPIED = ("sembridge", "oracle", "mutations", "experiments", "paper_figs", "tests", "docs")


def plan_mutants() -> list[tuple[Subject, Mutant]]:
    names = [o.name for o in OPERATORS.values() if o.on == "plan"]
    mutated = [s for source in ("matrix", "edges") for s in subjects(source).values()]
    return [(s, m) for s in mutated for m in mutants_of(s, names)]


def checked(pairs: list[tuple[Obligations, Mutant]]) -> tuple[float, int]:
    """CPU seconds of one pass of the checker, and how many plans it refuses."""
    best, refused = float("inf"), 0
    for _ in range(3):
        start = process_time()
        refused = sum(bool(CHECKER.violations(ob, m.plan)) for ob, m in pairs)
        best = min(best, process_time() - start)
    return best, refused


def peer() -> dict[str, Any] | None:
    """Trials a second of cosmic-ray and of forked trials, on the same mutants and tests."""
    if importlib.util.find_spec("cosmic_ray") is None:
        return None
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.work_item import MutationSpec

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        mutants = list(code_mutants(PEER_MODULE, copy))[:PEER_MUTANTS]
        path = copy.joinpath(*PEER_MODULE.split(".")).with_suffix(".py")
        tests = " ".join(f"{copy / t}" for t in QUICK)
        command = (
            f"{sys.executable} -m pytest -x -q -p no:cacheprovider -o addopts= "
            f"--rootdir {copy} {tests}"
        )
        start = perf_counter()
        theirs: dict[str, bool] = {}
        for mutant in mutants:
            _, name, occurrence = mutant.id.split(":")
            spec = MutationSpec(
                module_path=path,
                operator_name=f"core/{name}",
                occurrence=int(occurrence),
                start_pos=(1, 0),
                end_pos=(1, 1),
                operator_args={},
            )
            result = mutate_and_test([spec], command, timeout=120)
            theirs[mutant.id] = str(result.test_outcome) == "TestOutcome.KILLED"
        their_seconds = perf_counter() - start
        start = perf_counter()
        ours = judge_code(mutants, copy, QUICK)
        our_seconds = perf_counter() - start
    agree = sum(theirs[i] == (fate == "killed") for i, fate in ours.items())
    return {
        "module": PEER_MODULE,
        "mutants": len(mutants),
        "agree": agree,
        "cosmic_ray_per_second": round(len(mutants) / their_seconds, 3),
        "forked_per_second": round(len(mutants) / our_seconds, 3),
    }


def main() -> None:
    context = peer()
    mutants = plan_mutants()
    contracts = {s.name: resolve(s.contract) for s, _ in mutants}
    pairs = [(contracts[s.name], m) for s, m in mutants]
    seconds, refused = checked(pairs)
    rate = round(len(pairs) / seconds)
    sample = mutants[::20]
    start = process_time()
    for s, m in sample:
        judge_mutant(s, m, prove=prover_installed())
    judged_rate = round(len(sample) / (process_time() - start))
    campaigns: dict[str, dict[str, Any]] = {}
    for name, sources in {"matrix and edges": ("matrix", "edges"), "all": tuple(SOURCES)}.items():
        start = perf_counter()
        mutated = [s for source in sources for s in subjects(source).values()]
        judged = run(mutated, Options(prove=prover_installed()), jobs=2)
        elapsed = perf_counter() - start
        summary = summarize(judged)
        campaigns[name] = {
            "mutants": len(records_of(judged)),
            "sound": summary.sound,
            "classes": summary.classes,
            "volatile": {"seconds": round(elapsed, 1), "within": elapsed < CAMPAIGN_SECONDS},
        }
    document = {
        "plan_mutants": len(pairs),
        "refused": refused,
        "proved": prover_installed(),
        "checked_per_second_wanted": CHECKED_PER_SECOND,
        "campaign_seconds_wanted": CAMPAIGN_SECONDS,
        "campaigns": campaigns,
        "volatile": {
            "checked_per_cpu_second": rate,
            "judged_by_all_per_cpu_second": judged_rate,
            "peer": context,
            "machine": machine("numpy", "joblib"),
        },
    }
    rows: list[tuple[Any, ...]] = [
        ("plan mutants checked, per second and core", rate, f"at least {CHECKED_PER_SECOND}"),
        ("plan mutants judged by every judge, per second and core", judged_rate, ""),
        *(
            (
                f"order-1 campaign, {name}: {c['mutants']} mutants, two processes",
                f"{c['volatile']['seconds']} s",
                f"under {CAMPAIGN_SECONDS} s",
            )
            for name, c in campaigns.items()
        ),
    ]
    if context is not None:
        rows += [
            (
                f"code mutants of {context['module']} a second, in cosmic-ray's own runner",
                context["cosmic_ray_per_second"],
                "peer, for context",
            ),
            (
                "the same mutants and tests in forked trials",
                context["forked_per_second"],
                f"same verdict on {context['agree']} of {context['mutants']}",
            ),
        ]
    save("mutations", document, pipe_table(("measured", "value", "wanted"), rows))


if __name__ == "__main__":
    main()
