"""How long the facts of a 64-layer graph take, and how many of them DTensor says as well.

Writes results/benchmarks/graphs.json: the counts are the same on every run, the times stand
under ``volatile``. Needs torch, and transformers for two of the cases. Run with
``python -m benchmarks.graphs``.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from sembridge import io
from sembridge.graphs.derive import derive, edge_at, facts_at
from sembridge.graphs.lattice import Element
from sembridge.graphs.pt2 import read_pt2
from sembridge.graphs.torch_graphs import as_rank
from sembridge.lowering import compile_edge
from tests.graphs import modules, parallel
from tests.graphs.programs import mesh

ROOT = Path(__file__).parents[1]
LAYERS, RANKS = 64, 4
LIMIT_SECONDS = 10.0


def main() -> None:
    with as_rank(0, RANKS):
        exported = torch.export.export(modules.stack(LAYERS, RANKS), modules.inputs("stack"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stack.pt2"
        torch.export.save(exported, path)
        start = time.perf_counter()
        program = read_pt2(path)
        read = time.perf_counter() - start
    described = mesh(modules.placements(program), ranks=RANKS)
    start = time.perf_counter()
    derivation = derive(program, described)
    derived = time.perf_counter() - start
    start = time.perf_counter()
    found = facts_at([program], described, f"{LAYERS - 1}")
    compiled = compile_edge(edge_at(found, described), found.facts)
    whole = time.perf_counter() - start
    states = Counter(str(s) for s in derivation.states.values() if isinstance(s, Element))
    document = {
        "layers": LAYERS,
        "ranks": RANKS,
        "nodes": len(program.nodes),
        "states": dict(sorted(states.items())),
        "last_layer": {
            "by": found.facts.by,
            "ops": [type(op).__name__ for op in compiled.plan.ops],
        },
        "limit_seconds": LIMIT_SECONDS,
        "dtensor": {name: against_dtensor(name) for name in parallel.CASES},
        "volatile": {
            "read_seconds": round(read, 3),
            "derive_seconds": round(derived, 3),
            "facts_and_plan_seconds": round(whole, 3),
            "within_limit": read + whole < LIMIT_SECONDS,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
    }
    io.write(ROOT / "results/benchmarks/graphs.json", io.encode(document))
    print(f"{len(program.nodes)} nodes: read {read:.2f} s, derived {derived:.2f} s")


def against_dtensor(name: str) -> dict[str, Any]:
    """Submodule outputs that graph and DTensor place alike, and the others."""
    captured = parallel.captured(name, 2)
    derivation = captured.derive("tp", 2, {"0"})
    counted = dict.fromkeys(("alike", "unknown", "contradicted"), 0)
    for node, output in zip(captured.results, captured.outputs, strict=True):
        ours = derivation.at(node).placement
        kind = "unknown" if ours is None else "alike" if ours == output.placement else None
        counted[kind or "contradicted"] += 1
    return counted


if __name__ == "__main__":
    main()
