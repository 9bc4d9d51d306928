"""How the oracle's dynamic program grows, from (P, C, D) = (2, 2, 1) to (6, 6, 4).

``python -m benchmarks.oracle_growth`` writes a table, JSON and an SVG plot to results/benchmarks/.
"""

from __future__ import annotations

import time
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.oracle import empty_caches
from benchmarks.record import RESULTS, machine, pipe_table, save
from oracle.optimum import figures
from sembridge.contract import (
    BoundaryEdge,
    Contract,
    Domain,
    GraphFacts,
    Producer,
    Reduction,
    RuntimeFacts,
    Value,
    build_contract,
)
from sembridge.layout import Lane, Partial, Replicate
from sembridge.obligations import resolve_valid
from sembridge.surfaces import Complete, Tokens

SIZES = ((2, 2, 1), (3, 3, 2), (4, 4, 3), (5, 5, 3), (6, 6, 4))
KINDS = ("one class", "no lineage", "no lineage, tokens", "reduction, tokens")


def contract(kind: str, producers: int, consumers: int, domains: int) -> Contract:
    """One domain of producers; consumers dealt out over domains and over producers."""
    ids = tuple(f"p{i}" for i in range(producers))
    reduced = kind.startswith("reduction")
    graph = GraphFacts()
    if reduced:
        graph = GraphFacts(reduction=Reduction(op="sum", sources=ids))
    elif kind == "one class":
        graph = GraphFacts(replica_classes=(ids,))
    edge = BoundaryEdge(
        name=f"{kind} {producers} {consumers} {domains}",
        value=Value(kind="logits", shape=(3, 5), dtype="float32"),
        domains={f"d{d}": Domain(stack="cuda") for d in range(domains + 1)},
        producers=tuple(Producer(id=p, domain="d0") for p in ids),
        consumers=tuple(
            Lane(id=f"c{i}", domain=f"d{1 + i % domains}", source=ids[i % producers])
            for i in range(consumers)
        ),
        placement=Partial(op="sum") if reduced else Replicate(),
    )
    surface = Tokens() if "tokens" in kind else Complete()
    return build_contract(edge, graph, RuntimeFacts(surface=surface))


def draw(rows: list[dict[str, Any]]) -> None:
    """Seconds and states over the sizes, one line for each kind, logarithmic."""
    with mpl.rc_context({"svg.hashsalt": "sembridge", "font.size": 9}):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        axes = figure.subplots(1, 2)
        labels = [f"({p},{c},{d})" for p, c, d in SIZES]
        for ax, key, title in zip(
            axes, ("states", "seconds"), ("states", "seconds, empty caches"), strict=True
        ):
            for kind in KINDS:
                points = [row[key] for row in rows if row["kind"] == kind]
                ax.plot(labels, points, marker="o", label=kind)
            ax.set_yscale("log")
            ax.set_xlabel("(producers, consumers, domains)")
            ax.set_title(title)
        axes[0].legend(frameon=False)
        figure.savefig(RESULTS / "oracle_growth.svg", metadata={"Date": None})


def main() -> None:
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for size in SIZES:
            ob = resolve_valid(contract(kind, *size))
            empty_caches()
            start = time.perf_counter()
            found = figures(ob)
            seconds = time.perf_counter() - start
            rows.append(
                {
                    "kind": kind,
                    "size": list(size),
                    "sequences": found.sequences,
                    "programs": found.programs,
                    "frontier": len(found.pareto),
                    "states": found.states,
                    "seconds": seconds,
                }
            )
            print(kind, size, f"{seconds:.2f} s", flush=True)
    document = {
        "format": "sembridge.benchmark/1",
        "name": "oracle_growth",
        "how": "one contract of each size from empty caches: sequences, programs and frontier",
        "rows": [{k: v for k, v in row.items() if k != "seconds"} for row in rows],
        "volatile": {"machine": machine(), "seconds": [row["seconds"] for row in rows]},
    }
    table = [
        (
            row["kind"],
            "({},{},{})".format(*row["size"]),
            f"{row['programs']:.4g}",
            f"{row['sequences']:.4g}",
            row["frontier"],
            row["states"],
            f"{row['seconds']:.3f}",
        )
        for row in rows
    ]
    columns = ("contract", "(P,C,D)", "programs", "sequences", "frontier", "states", "seconds")
    save(
        "oracle_growth",
        document,
        "# Growth of the oracle\n\nDynamic program from empty caches, one process.\n\n"
        + pipe_table(columns, table)
        + "\n![growth](oracle_growth.svg)\n",
    )
    draw(rows)


if __name__ == "__main__":
    main()
