"""The bounded oracle against clingo and z3, in one run: programs, optima, and the whole family.

``python -m benchmarks.oracle [--family]``; with ``--family`` the dynamic program also runs over
every contract of the bounded family. Peers get the same contracts and must find the same counts
and the same optima.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import clingo
import z3

from benchmarks.compile import edge
from benchmarks.record import machine, pipe_table, save
from experiments.matrix import matrix
from oracle import optimum
from oracle.certify import certify
from oracle.enumerate import programs, sequences
from oracle.family import Cell, cells, members
from oracle.optimum import figures
from oracle.program import lineage_of
from oracle.verify import verify
from sembridge.campaign import run_campaign
from sembridge.contract import GraphFacts, RuntimeFacts, build_contract
from sembridge.lowering import lower_valid
from sembridge.obligations import Obligations, resolve_valid

LANES = 50_000

PROGRAMS = """
1 { from(C,S) : may(C,S) } 1 :- consumer(C).
reached(C) :- from(C,S), producer(S).
reached(C) :- from(C,S), reached(S).
:- consumer(C), not reached(C).
sent(C) :- from(C,S), domain(C,D), not domain(S,D).
home(C,S) :- from(C,S), domain(C,D), domain(S,D).
1 { block(C,L) : home(L,S), L <= C } 1 :- home(C,S).
:- block(C,L), not block(L,L).
:- block(C,L), home(C,S), not home(L,S).
#show from/2.
#show block/2.
"""
"""Each consumer has one holder; receivers at home form broadcasts, named by their least member."""

MINIMIZE = """
#minimize { V@6,C : sent(C), bytes(V) }.
#minimize { 1@5,C : sent(C) }.
#minimize { V@4,C : home(C,S), bytes(V) }.
#minimize { 1@3,C : block(C,C) }.
#minimize { 1@1,C,sent : sent(C); 1@1,C,block : block(C,C) }.
"""


def facts(ob: Obligations) -> str:
    """The obligations of a matrix case as ASP facts: who may be served by whom, and where."""
    lines = [f"bytes({ob.value_bytes})."]
    lines += [f'domain("{x}","{d}").' for x, d in ob.domain_of.items()]
    lines += [f'producer("{p}").' for p in ob.producers]
    for c in ob.demanded:
        lines.append(f'consumer("{c}").')
        lineage = lineage_of(ob, c)
        sources = [p for p in ob.producers if p in lineage]
        sources += [x for x in ob.demanded if x != c and lineage_of(ob, x) == lineage]
        lines += [f'may("{c}","{x}").' for x in sources]
    return "\n".join(lines)


def clingo_count(ob: Obligations) -> int:
    """Programs, enumerated model by model."""
    control = clingo.Control(["0", "--warn=none"])
    control.add("base", [], PROGRAMS + facts(ob))
    control.ground([("base", [])])
    with control.solve(yield_=True) as models:
        return sum(1 for _ in models)


def _with_reduction(ob: Obligations, costs: list[int]) -> tuple[int, ...]:
    bytes_x, startups, local, natives, ops = costs
    reduced = 0 if ob.reduced is None else 1
    extra = (len(ob.producers) - 1) * ob.value_bytes * reduced
    return bytes_x, startups, local + extra, natives, reduced, ops + reduced


def clingo_optimum(ob: Obligations) -> tuple[int, ...]:
    """The lexicographic minimum by #minimize over priorities."""
    control = clingo.Control(["--warn=none"])
    control.add("base", [], PROGRAMS + MINIMIZE + facts(ob))
    control.ground([("base", [])])
    best: dict[int, int] = {}
    with control.solve(yield_=True) as models:
        for model in models:
            best = dict(zip(model.priority, model.cost, strict=True))
    # A priority without any term at all does not occur: its cost is nothing.
    return _with_reduction(ob, [best.get(priority, 0) for priority in (6, 5, 4, 3, 1)])


def z3_optimum(ob: Obligations) -> tuple[int, ...]:
    """The lexicographic minimum by z3's Optimize, objectives in order."""
    solver = z3.Optimize()
    solver.set(priority="lex")
    rank = {x: i for i, x in enumerate([*ob.producers, *ob.demanded])}
    served = {c: z3.Int(f"from_{c}") for c in ob.demanded}
    depth = {x: z3.Int(f"depth_{x}") for x in rank}
    solver.add([depth[p] == 0 for p in ob.producers])
    sends: list[Any] = []
    local: list[Any] = []
    roots: dict[str, list[Any]] = {}
    for c in ob.demanded:
        lineage = lineage_of(ob, c)
        options = [p for p in ob.producers if p in lineage]
        options += [x for x in ob.demanded if x != c and lineage_of(ob, x) == lineage]
        solver.add(z3.Or([z3.And(served[c] == rank[x], depth[c] > depth[x]) for x in options]))
        home = [x for x in options if ob.domain_of[x] == ob.domain_of[c]]
        at_home = z3.Or([served[c] == rank[x] for x in home])
        sends.append(z3.If(at_home, 0, 1))
        local.append(z3.If(at_home, 1, 0))
        for x in home:
            roots.setdefault(x, []).append(served[c] == rank[x])
    natives = [z3.If(z3.Or(uses), 1, 0) for uses in roots.values()] or [z3.IntVal(0)]
    size, startups, native = ob.value_bytes, z3.Sum(sends), z3.Sum(natives)
    objectives = [size * startups, startups, size * z3.Sum(local), native, startups + native]
    handles = [solver.minimize(objective) for objective in objectives]
    assert solver.check() == z3.sat
    return _with_reduction(ob, [solver.lower(handle).as_long() for handle in handles])


def empty_caches() -> None:
    """Drop whatever earlier contracts left behind."""
    for cached in (optimum.count, optimum.frontier, optimum._figures):
        cached.cache_clear()


def timed(run: Callable[[Obligations], Any], cases: list[Obligations]) -> tuple[float, list[Any]]:
    """Seconds for all cases together, and what was found."""
    start = time.perf_counter()
    found = [run(ob) for ob in cases]
    return time.perf_counter() - start, found


def family_part(cell: Cell) -> tuple[int, int, int]:
    """Contracts, sequences and programs of one part of the family."""
    found = [figures(resolve_valid(contract)) for contract, _ in members(cell)]
    return len(found), sum(f.sequences for f in found), sum(f.programs for f in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="store_true", help="the whole family as well")
    options = parser.parse_args()
    cases = [resolve_valid(case.contract) for case in matrix()]

    listing, counts = timed(lambda ob: sum(1 for _ in sequences(ob)), cases)
    listed, ours = timed(lambda ob: len(programs(ob)), cases)
    enumerated, theirs = timed(clingo_count, cases)
    assert ours == theirs, "clingo finds other programs"
    assert ours == [figures(ob).programs for ob in cases], "the dynamic program counts others"
    empty_caches()
    solved, best = timed(lambda ob: tuple(figures(ob).optimum), cases)
    by_clingo, clingo_best = timed(clingo_optimum, cases)
    by_z3, z3_best = timed(z3_optimum, cases)
    assert best == clingo_best == z3_best, "the optima differ"

    big = edge(LANES)
    lanes = tuple(p.id for p in big.producers)
    demanded = tuple(c.id for c in big.consumers)
    ob = resolve_valid(
        build_contract(big, GraphFacts(replica_classes=(lanes,)), RuntimeFacts(demanded=demanded))
    )
    plan, _ = lower_valid(ob)
    start = time.perf_counter()
    certificate = certify(ob, plan)
    certifying = time.perf_counter() - start
    start = time.perf_counter()
    assert verify(ob, plan, certificate) == []
    verifying = time.perf_counter() - start

    volatile: dict[str, Any] = {
        "machine": machine("clingo", "z3-solver"),
        "sequences_seconds": listing,
        "programs_seconds": {"ours": listed, "clingo": enumerated},
        "optimum_seconds": {"ours": solved, "clingo": by_clingo, "z3": by_z3},
        "certificate_seconds": {"write": certifying, "verify": verifying},
    }
    document = {
        "format": "sembridge.benchmark/1",
        "name": "oracle",
        "how": "72 matrix cases one after another in one process; ours starts from empty caches",
        "sequences": sum(counts),
        "programs": sum(ours),
        "endpoints_certified": len(ob.producers) + len(ob.consumers),
    }
    rows = [
        ("every sequence, op by op with the checker", sum(counts), f"{listing:.2f}", "", ""),
        (
            "every program, counted (dynamic program, with optimum and frontier)",
            sum(ours),
            f"{solved:.3f}",
            f"clingo, model by model {enumerated:.2f}",
            f"{enumerated / solved:.1f}×",
        ),
        (
            "every program, listed and checked op by op",
            sum(ours),
            f"{listed:.2f}",
            f"clingo, model by model, unchecked {enumerated:.2f}",
            f"{enumerated / listed:.1f}×",
        ),
        (
            "optimum of 72 cases",
            "",
            f"{solved:.3f}",
            f"clingo #minimize {by_clingo:.2f}",
            f"{by_clingo / solved:.1f}×",
        ),
        ("", "", "", f"z3 Optimize {by_z3:.2f}", f"{by_z3 / solved:.1f}×"),
        (
            "certificate, write and verify",
            f"{document['endpoints_certified']} endpoints",
            f"{certifying:.2f} + {verifying:.2f}",
            "",
            "",
        ),
    ]
    if options.family:
        start = time.perf_counter()
        found = run_campaign(cells(), family_part, key=lambda cell: cell.key)
        seconds = time.perf_counter() - start
        volatile["family_seconds"] = seconds
        document["family"] = {
            "contracts": sum(f[0] for f in found),
            "sequences": sum(f[1] for f in found),
            "programs": sum(f[2] for f in found),
        }
        rows.append(
            (
                "the whole family, all cores",
                f"{document['family']['contracts']} contracts",
                f"{seconds:.0f}",
                "",
                "",
            )
        )
    document["volatile"] = volatile
    save(
        "oracle",
        document,
        "# The bounded oracle\n\n"
        "72 cases in one process, seconds in all; peers find the same counts and the same optima "
        "in the same run.\n\n"
        + pipe_table(("what", "how many", "ours s", "peer s", "ratio"), rows),
    )


if __name__ == "__main__":
    main()
