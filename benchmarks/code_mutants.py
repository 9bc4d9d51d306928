"""The mutation score of the checker's own code: survivors listed, each explained or not.

Run with ``python -m benchmarks.code_mutants [JOBS [JOURNAL]]``; needs ``pip install cosmic-ray``.
Every mutant meets the quick tests, and what survives them without an explanation the thorough
ones, once the code as it is has passed both. A journal (JSON lines) makes it resumable.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.record import machine, pipe_table, save
from mutations.code import (
    MODULES,
    QUICK,
    THOROUGH,
    CodeMutant,
    Fate,
    code_mutants,
    explanation,
    judge_code,
    path_of,
)

ROOT = Path(__file__).parent.parent
WANTED = 95.0
UNEXPLAINED = "**not explained**"


def sane(tests: tuple[str, ...], budget: int) -> None:
    """Stop where the tests fail on the code as it is: they would kill everything."""
    module = MODULES[0]
    source = path_of(module, ROOT).read_text("utf-8")
    unchanged = CodeMutant(id="", module=module, line=0, before="", after="", source=source)
    fate = judge_code([unchanged], ROOT, tests, budget=budget)[unchanged.id]
    if fate is not Fate.SURVIVED:
        raise SystemExit(f"unmutated code: {fate} by {', '.join(tests)}")


def judged(mutants: list[CodeMutant], jobs: int, journal: Path | None) -> dict[str, Fate]:
    """The fate of every mutant; a journal's last word on a mutant stands."""
    fates: dict[str, Fate] = {}
    final: set[str] = set()
    for line in journal.read_text().splitlines() if journal and journal.exists() else ():
        entry = json.loads(line)
        fates[entry["id"]] = Fate(entry["fate"])
        if entry["thorough"] or entry["fate"] != Fate.SURVIVED:
            final.add(entry["id"])

    for thorough, tests, budget in ((False, QUICK, 30), (True, THOROUGH, 300)):

        def note(mutant: CodeMutant, fate: Fate, thorough: bool = thorough) -> None:
            if journal:
                with journal.open("a") as file:
                    entry = {"id": mutant.id, "fate": str(fate), "thorough": thorough}
                    file.write(json.dumps(entry) + "\n")

        left = [
            m
            for m in mutants
            if m.id not in final
            and (fates.get(m.id) is Fate.SURVIVED) == thorough
            and not (thorough and explanation(m))
        ]
        if left:
            sane(tests, budget)
        fates |= judge_code(left, ROOT, tests, jobs=jobs, budget=budget, progress=note)
    return fates


def _code(line: str) -> str:
    return "`" + line.replace("|", "\\|") + "`"


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    journal = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    resumed = journal is not None and journal.exists()
    start = perf_counter()
    mutants = [m for module in MODULES for m in code_mutants(module, ROOT)]
    fates = judged(mutants, jobs, journal)
    counts: Counter[tuple[str, str]] = Counter()
    survivors: list[dict[str, Any]] = []
    for m in mutants:
        fate, why = fates[m.id], explanation(m)
        if fate is Fate.KILLED or fate is Fate.UNIMPORTABLE:
            counts[m.module, fate] += 1
            continue
        counts[m.module, "equivalent" if why else fate] += 1
        survivors.append(
            {
                "id": m.id,
                "line": m.line,
                "before": m.before,
                "after": m.after,
                "fate": str(fate),
                "why": why,
            }
        )
    columns = (Fate.KILLED, "equivalent", Fate.SURVIVED, Fate.HUNG, Fate.CRASHED, Fate.UNIMPORTABLE)
    rows: list[tuple[Any, ...]] = []
    for module in (*MODULES, "all"):
        own = [
            sum(n for (m, f), n in counts.items() if f == c and module in (m, "all"))
            for c in columns
        ]
        judged_ones = own[0] + own[2] + own[3] + own[4]
        rows.append((module, sum(own), *own, round(100 * own[0] / judged_ones, 2)))
    names = ("module", "mutants", *map(str, columns), "score")
    document = {
        "wanted": WANTED,
        "modules": [dict(zip(names, row, strict=True)) for row in rows],
        "survivors": survivors,
        "volatile": {
            "seconds": round(perf_counter() - start),
            "resumed": resumed,
            "jobs": jobs,
            "machine": machine("cosmic-ray", "pytest", "hypothesis"),
        },
    }
    told = pipe_table(
        ("mutant", "before", "after", "fate", "why it is equivalent"),
        [
            (s["id"], _code(s["before"]), _code(s["after"]), s["fate"], s["why"] or UNEXPLAINED)
            for s in survivors
        ],
    )
    note = (
        "\nThe score is kills in percent of kills, survivors, hangs and crashes; equivalents and "
        "what cannot be imported are left out.\n\n"
    )
    save("code_mutants", document, pipe_table(names, rows) + note + told)


if __name__ == "__main__":
    main()
