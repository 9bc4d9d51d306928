"""The soundness theorem, the exact projections, and plans that the solver chooses."""

from __future__ import annotations

from typing import Any

from experiments.ledger import Check
from experiments.matrix import matrix
from experiments.registry import Result, Settings, Table, Volatile, experiment
from oracle.smt import solver
from oracle.smt.projections import FORMATS, LEMMAS, prove_exact
from oracle.smt.solver import Answer
from oracle.smt.symbolic import Bounds, accepted_and_wrong, cheapest
from oracle.smt.theorem import ASSUMPTIONS, Proved, prove_theorem
from sembridge.lowering import lower_valid
from sembridge.obligations import resolve_valid

WHERE = "§3.6, Proposition 1"
WITHIN = {False: (0, 1), True: (1, 2)}
"""By ``full``: ops more than the lowered plan has, and slices of the value."""


def _guards(proved: list[Proved]) -> Check:
    needed = [(p, g, a) for p in proved for g, a in p.without.items() if g not in p.implied]
    implied = sum(len(p.implied) for p in proved)
    return Check(
        name="guards whose lemma has a counterexample without them",
        where=WHERE,
        ours=sum(answer is Answer.SAT for _, _, answer in needed),
        expected=len(needed),
        note=f"{implied} more are implied by the others",
    )


@experiment("theorem", "Proposition 1 for all sizes, and plans chosen by the solver (§3.6)")
def theorem(settings: Settings) -> Result:
    """Prove every lemma; over the matrix, look for a plan that is accepted and wrong."""
    proved = list(prove_theorem())
    exact = list(prove_exact())
    records: list[dict[str, Any]] = []
    spare, cells = WITHIN[settings.full]
    cases = list(matrix())
    for n, case in enumerate(cases):
        if settings.progress:
            settings.progress(n, len(cases), case.id)
        ob = resolve_valid(case.contract)
        lowered, report = lower_valid(ob)
        bounds = Bounds(ops=len(lowered.ops) + spare, cells=cells)
        best = cheapest(ob, Bounds(ops=len(lowered.ops) + 1, cells=cells))
        records.append(
            {
                "case": case.id,
                "ops": bounds.ops,
                "accepted and wrong": str(accepted_and_wrong(ob, bounds).answer),
                "cheapest": str(best.answer),
                "cost": best.cost,
                "lowered": list(report.footprint),
                "equal": best.cost == tuple(report.footprint),
            }
        )
    checks = (
        Check(
            name="lemmas that hold, their hypotheses satisfiable",
            where=WHERE,
            ours=sum(p.holds is Answer.UNSAT and p.consistent is Answer.SAT for p in proved),
            expected=len(proved),
        ),
        _guards(proved),
        Check(
            name="lemmas on argmax over shards, lemma by format",
            where="§2.2",
            ours=sum(e.answer is Answer.UNSAT for e in exact),
            expected=len(LEMMAS) * len(FORMATS),
        ),
        Check(
            name="matrix contracts with no plan that is accepted and wrong",
            where=WHERE,
            ours=sum(r["accepted and wrong"] == Answer.UNSAT for r in records),
            expected=len(records),
            note=f"of up to {spare} ops more than the lowered plan; the value in {cells} slices",
        ),
        Check(
            name="matrix contracts whose lowered plan is the cheapest that the solver finds",
            where="§6.1",
            ours=sum(r["cheapest"] == Answer.SAT and r["equal"] for r in records),
            expected=len(records),
        ),
    )
    return Result(
        name="theorem",
        how="lemmas over uninterpreted sorts, each one solver question; then the ops themselves "
        "as unknowns",
        checks=checks,
        tables=(
            Table(
                title="Lemmas, for any number of endpoints, elements and ops",
                columns=("lemma", "holds", "says", "guards needed", "implied"),
                rows=tuple(
                    (
                        p.name,
                        "yes" if p.stands else "no",
                        p.says,
                        sum(g not in p.implied for g in p.without),
                        len(p.implied),
                    )
                    for p in proved
                ),
                note="Assumed: " + " ".join(ASSUMPTIONS),
            ),
        ),
        records=tuple(records),
        volatile=Volatile(notes={"solver": solver.version()}),
    )
