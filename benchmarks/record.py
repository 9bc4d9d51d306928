"""What every benchmark shares: timing, quantiles, the machine, and the result file."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from sembridge import io

RESULTS = Path(__file__).parent.parent / "results" / "benchmarks"


def microseconds(run: Callable[[], object], repeat: int, *, warm: int = 50) -> list[float]:
    """Sorted wall times of single calls, collector off, clock read around each."""
    for _ in range(min(warm, repeat)):
        run()
    times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeat):
            start = perf_counter_ns()
            run()
            times.append((perf_counter_ns() - start) / 1e3)
    finally:
        gc.enable()
    return sorted(times)


def quantile(times: list[float], q: float) -> float:
    """The q-quantile of sorted times (nearest rank)."""
    return times[min(len(times) - 1, int(q * len(times)))]


def machine(*packages: str) -> dict[str, Any]:
    """What a figure depends on besides the code."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        models = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("msgspec", *packages)},
    }


def save(name: str, document: dict[str, Any], markdown: str) -> None:
    """Write results/benchmarks/NAME.json and NAME.md."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    io.write(RESULTS / f"{name}.json", io.encode(document))
    io.write(RESULTS / f"{name}.md", markdown.encode())
    print(markdown)


def pipe_table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
