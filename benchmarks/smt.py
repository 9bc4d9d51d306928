"""Latency of proofs, once the process is warm: the shared cases and the matrix.

``python -m benchmarks.smt [-o results/benchmarks/smt.json]``
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from experiments.judges import case_pairs
from experiments.matrix import matrix
from oracle.shrink import Pair
from oracle.smt import solver
from oracle.smt.projections import prove_exact
from oracle.smt.prove import prove
from oracle.smt.theorem import prove_theorem
from oracle.smt.witness import find_witness
from sembridge import io
from sembridge.lowering import lower
from sembridge.verdict import Verdict

CASES = Path(__file__).parents[1] / "tests" / "cases"
ROUNDS = 5


def quantiles(seconds: list[float]) -> dict[str, float]:
    """p50, p95 and the largest, in milliseconds."""
    ordered = sorted(seconds)
    picked = {"p50": ordered[len(ordered) // 2], "p95": ordered[int(len(ordered) * 0.95)]}
    return {name: round(s * 1e3, 2) for name, s in (picked | {"max": ordered[-1]}).items()}


def timed(call: Any, pairs: list[Pair], rounds: int = ROUNDS) -> dict[str, float]:
    """Quantiles of ``call`` over the pairs, after one round that is not counted."""
    seconds: list[float] = []
    for n in range(rounds + 1):
        for pair in pairs:
            started = time.perf_counter()
            call(*pair)
            if n:
                seconds.append(time.perf_counter() - started)
    return quantiles(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    output = parser.parse_args().output
    cases = list(case_pairs(CASES))
    lowered = [(case.contract, lower(case.contract)) for case in matrix()]
    illegal = [pair for pair in cases if prove(*pair).verdict is Verdict.ILLEGAL]
    started = time.perf_counter()
    stands = all(p.stands for p in prove_theorem())
    theorem = time.perf_counter() - started
    exact = len(list(prove_exact()))
    projections = time.perf_counter() - started - theorem
    measured = {
        "prove, with facts or every broken rule (ms)": timed(prove, cases + lowered),
        "prove, the verdict alone (ms)": timed(
            lambda c, p: prove(c, p, explain=False), cases + lowered
        ),
        "find and shrink a witness (ms)": timed(find_witness, illegal, 1),
        "theorem (s)": round(theorem, 3),
        "exact projections (s)": round(projections, 3),
    }
    report = {
        "benchmark": "smt",
        "plans": {"shared cases": len(cases), "matrix": len(lowered)},
        "theorem stands": stands,
        "projection lemmas": exact,
        "volatile": {"solver": solver.version(), "measured": measured},
    }
    data = io.encode(report)
    if output is None:
        print(data.decode(), end="")
    else:
        io.write(output, data)


if __name__ == "__main__":
    main()
