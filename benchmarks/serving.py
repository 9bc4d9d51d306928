"""How long 100,000 request bodies take from JSON Lines to decisions.

Writes results/benchmarks/serving.json: the counts are the same on every run, the times stand
under ``volatile``. Run with ``python benchmarks/serving.py``.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections import Counter
from pathlib import Path

from sembridge import io
from sembridge.serving.batch import Step, read_batch, summary

ROOT = Path(__file__).parents[1]
REQUESTS = 100_000
LIMIT_SECONDS = 5.0


def main() -> None:
    bodies = (ROOT / "tests/data/requests.jsonl").read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.jsonl"
        path.write_text("".join(f"{bodies[i % len(bodies)]}\n" for i in range(REQUESTS)))
        size = path.stat().st_size
        start, cpu = time.perf_counter(), time.process_time()
        entries = list(read_batch(path))
        parsed, used = time.perf_counter() - start, time.process_time() - cpu
        start = time.perf_counter()
        report = summary(entries, Step(vocab=200_064, lanes=4))
        summarised = time.perf_counter() - start
    surfaces = Counter(
        entry.decision.paper_surface if entry.decision else "reject" for entry in entries
    )
    document = {
        "requests": len(entries),
        "bytes": size,
        "paper_surfaces": dict(sorted(surfaces.items())),
        "bytes_per_step": report["bytes_per_step"],
        "limit_seconds": LIMIT_SECONDS,
        "volatile": {
            "parse_seconds": round(parsed, 3),
            "parse_cpu_seconds": round(used, 3),
            "summary_seconds": round(summarised, 3),
            "within_limit": parsed < LIMIT_SECONDS,
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
    }
    target = ROOT / "results/benchmarks/serving.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    io.write(target, io.encode(document))
    print(f"{len(entries)} requests in {parsed:.2f} s, {used:.2f} s of it on the CPU")
    print(f"summary in {summarised:.2f} s")


if __name__ == "__main__":
    main()
