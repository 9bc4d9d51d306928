"""Compile time (facts to contract to checked plan) on the headline edges, growth, and the peer.

``python -m benchmarks.compile [--msccl PATH]``; PATH is a checkout of microsoft/msccl-tools, whose
traced, checked and lowered all-gather and broadcast programs are the peer. Without it the peer's
rows say ``not measured``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.record import machine, microseconds, pipe_table, quantile, save
from experiments.ledger import paper
from experiments.real_edges import headline_edges
from sembridge.contract import (
    BoundaryEdge,
    Domain,
    GraphFacts,
    Producer,
    RuntimeFacts,
    Value,
)
from sembridge.layout import Lane, Replicate, Shard
from sembridge.lowering import compile_edge

RANKS = (4, 8, 64)
SIZES = (1_000, 10_000, 100_000, 1_000_000)


def edge(lanes: int, *, sharded: bool = False) -> BoundaryEdge:
    """``lanes`` producers in one domain and as many consumers in another."""
    return BoundaryEdge(
        name="edge",
        value=Value(kind="hidden", shape=(lanes, 64), dtype="bfloat16"),
        domains={"h": Domain(stack="cuda"), "t": Domain(stack="cann")},
        producers=tuple(Producer(id=f"p{i}", domain="h") for i in range(lanes)),
        consumers=tuple(Lane(id=f"c{i}", domain="t", source=f"p{i}") for i in range(lanes)),
        placement=Shard(dim=0) if sharded else Replicate(),
    )


def ours(program: str, ranks: int) -> Callable[[], object]:
    """The peer's program as a contract: slices and all_gather, or one send and a broadcast."""
    built = edge(ranks)
    lanes = tuple(f"p{i}" for i in range(ranks))
    graph = GraphFacts(replica_classes=(lanes,)) if program == "broadcast" else GraphFacts()
    runtime = RuntimeFacts(demanded=tuple(f"c{i}" for i in range(ranks)))
    return lambda: compile_edge(built, graph, runtime)


def msccl(program: str, ranks: int) -> Callable[[], object]:
    """Trace, check and lower one program with msccl-tools (to its instruction DAG and XML)."""
    from msccl.language import Buffer, Chunk, MSCCLProgram, chunk  # pyright: ignore
    from msccl.language.collectives import AllGather, Collective  # pyright: ignore
    from msccl.topologies import fully_connected  # pyright: ignore

    class Broadcast(Collective):
        def __init__(self) -> None:
            super().__init__(ranks, 1, True)
            self.name = "broadcast"

        def init_buffers(self) -> list[dict[Any, list[Any]]]:
            buffers = []
            for rank in range(ranks):
                held = [Chunk(0, 0, 0, 0)] if rank == 0 else []
                buffers.append({Buffer.input: held, Buffer.output: held or [None]})
            return buffers

        def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
            return Buffer.output, index

        def check(self, prog: Any) -> bool:
            held = [prog.buffers[rank][Buffer.output][0] for rank in range(ranks)]
            return all(c is not None and c.origin_rank == 0 for c in held)

    topology = fully_connected(ranks)

    def run() -> None:
        gather = program == "all-gather"
        collective = AllGather(ranks, 1, True) if gather else Broadcast()
        traced = MSCCLProgram(program, topology, collective, 1)
        with traced:
            for root in range(ranks) if gather else (0,):
                held = chunk(root, Buffer.output, root)
                for rank in range(ranks):
                    if rank != root:
                        held.copy(rank, Buffer.output, root)
            assert traced.check()
            traced.generate_xml()

    return run


def peers(path: str | None, repeat: int) -> list[dict[str, Any]]:
    """Ours and the peer's, program by program, in one run."""
    if path is not None:
        sys.path.insert(0, path)
    found: list[dict[str, Any]] = []
    for program in ("all-gather", "broadcast"):
        for ranks in RANKS:
            mine = quantile(microseconds(ours(program, ranks), repeat), 0.5)
            theirs = None
            if path is not None:
                times = microseconds(msccl(program, ranks), max(5, repeat // (ranks * 4)), warm=3)
                theirs = quantile(times, 0.5)
            found.append({"program": program, "ranks": ranks, "ours_us": mine, "peer_us": theirs})
    return found


def grow(kind: str, endpoints: int) -> dict[str, float]:
    """Compile once in a fresh process: seconds and peak resident MiB, building endpoints apart."""
    code = (
        "import resource, time\n"
        "from benchmarks.compile import edge, GraphFacts, RuntimeFacts, compile_edge\n"
        f"n = {endpoints} // 2\n"
        f"e = edge(n, sharded={kind == 'shards'})\n"
        "g = GraphFacts(replica_classes=(tuple(p.id for p in e.producers),)"
        f" if {kind == 'representative'} else None)\n"
        "r = RuntimeFacts(demanded=[c.id for c in e.consumers])\n"
        "t = time.perf_counter(); compile_edge(e, g, r); s = time.perf_counter() - t\n"
        "print(s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, mib = map(float, out.stdout.split())
    return {"seconds": seconds, "peak_mib": mib}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--msccl", help="checkout of microsoft/msccl-tools")
    parser.add_argument("--repeat", type=int, default=4000)
    options = parser.parse_args()
    started = time.time()
    per_edge = {}
    for name, e in headline_edges().items():
        times = microseconds(lambda e=e: compile_edge(e.edge, e.graph, e.runtime), options.repeat)
        per_edge[name] = {"p50_us": quantile(times, 0.5), "p95_us": quantile(times, 0.95)}
    against = peers(options.msccl, options.repeat // 4)
    growth = {
        kind: {str(n): grow(kind, n) for n in SIZES}
        for kind in ("representative", "shards", "slices")
    }
    a100, ascend = paper("compile_p95_ms.a100_host"), paper("compile_p95_ms.ascend_host")
    document = {
        "format": "sembridge.benchmark/1",
        "name": "compile",
        "how": "single calls of compile_edge (facts to contract to obligations to plan to checked "
        "plan, nothing cached but the endpoints' index), collector off",
        "volatile": {
            "machine": machine(),
            "seconds": round(time.time() - started, 1),
            "headline_edges": per_edge,
            "peer": {"name": "microsoft/msccl-tools", "programs": against},
            "growth": growth,
        },
    }
    edges = [(name, f"{t['p50_us']:.1f}", f"{t['p95_us']:.1f}") for name, t in per_edge.items()]
    rows = [
        (
            p["program"],
            p["ranks"],
            f"{p['ours_us']:.1f}",
            "not measured" if p["peer_us"] is None else f"{p['peer_us']:.0f}",
            "" if p["peer_us"] is None else f"{p['peer_us'] / p['ours_us']:.0f}×",
        )
        for p in against
    ]
    sizes = [
        (kind, n, f"{g['seconds']:.3f}", f"{g['peak_mib']:.0f}")
        for kind, by_size in growth.items()
        for n, g in by_size.items()
    ]
    save(
        "compile",
        document,
        "# Compile time\n\n"
        "Facts to contract to checked plan, one edge, microseconds. The paper reports a p95 of "
        f"{a100[0] * 1e3:.0f} to {a100[1] * 1e3:.0f} on its A100 host "
        f"and {ascend[0] * 1e3:.0f} to {ascend[1] * 1e3:.0f} on its "
        "Ascend host (reported by the paper).\n\n"
        + pipe_table(("edge", "p50 µs", "p95 µs"), edges)
        + "\nAgainst msccl-tools (trace, check, lower), medians in one run:\n\n"
        + pipe_table(("program", "ranks", "ours µs", "msccl-tools µs", "ratio"), rows)
        + "\nGrowth, one compile in a fresh process (endpoints are half producers):\n\n"
        + pipe_table(("plan", "endpoints", "seconds", "peak MiB"), sizes),
    )


if __name__ == "__main__":
    main()
