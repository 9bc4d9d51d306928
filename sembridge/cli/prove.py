"""Commands of the provers: prove a plan or the theorem, replay a witness, compare the judges."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.judges import SOURCES, case_pairs
from oracle.judges import SANE, Agreement, compare
from oracle.samples import draw_pairs
from oracle.smt import solver
from oracle.smt.model import encode
from oracle.smt.projections import Exact, prove_exact
from oracle.smt.prove import Proof
from oracle.smt.prove import prove as prove_plan
from oracle.smt.second import confirm as confirm_question
from oracle.smt.solver import Answer
from oracle.smt.theorem import ASSUMPTIONS, Proved, lemmas, prove_theorem, questions
from oracle.smt.witness import Witness, decode_witness, find_witness
from oracle.smt.witness import replay as replay_witness
from sembridge import io
from sembridge.cli.console import (
    EXIT,
    Json,
    Quiet,
    emit,
    err,
    out,
    progress,
    table,
    where,
)
from sembridge.cli.models import make_folder
from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.footprint import footprint_of
from sembridge.obligations import resolve, validate
from sembridge.plan import Plan
from sembridge.verdict import Verdict

Dump = Annotated[
    Path | None, typer.Option("--dump-smt", help="Write the solver's questions here as SMT-LIB.")
]
Budget = Annotated[int, typer.Option(min=1, help="Budget of each question, in z3's rlimit units.")]


def prove(
    contract: Annotated[Path | None, typer.Argument(metavar="CONTRACT")] = None,
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN")] = None,
    theorem: Annotated[
        bool, typer.Option("--theorem", help="Prove the soundness theorem for all sizes instead.")
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Ask cvc5 too, and have it check its proofs.")
    ] = False,
    dump_smt: Dump = None,
    witness: Annotated[
        Path | None, typer.Option(help="Write the counterexample to an illegal plan here.")
    ] = None,
    rlimit: Budget = solver.RLIMIT,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove a plan legal by an SMT solver, or show a counterexample.

    A legal plan's proof names the facts that it needs. An illegal plan's counterexample is
    shrunk, concrete, and replays with `sembridge replay`.

    Exit 0 legal, 1 illegal, 2 bad input, 3 unknown within the budget.

    Examples: `sembridge prove edge.json plan.json` ·
    `sembridge prove edge.json plan.json --json --witness found.json` ·
    `sembridge prove --theorem --dump-smt smt/`
    """
    if dump_smt is not None:
        make_folder(dump_smt)
    if theorem:
        if contract is not None:
            raise BadInput("--theorem is about every contract and plan: name none")
        _theorem(dump_smt, confirm, rlimit, as_json, quiet)
    if contract is None or plan is None:
        raise BadInput("a contract and a plan are needed, or --theorem")
    read, ops = io.read_contract(contract), io.read_plan(plan)
    proof = prove_plan(read, ops, rlimit=rlimit, dump=dump_smt)
    if confirm:
        proof = _confirmed(read, ops, proof)
    found = find_witness(read, ops, rlimit=rlimit) if proof.verdict is Verdict.ILLEGAL else None
    if witness is not None and found is not None:
        io.write(witness, io.encode(found))
    if as_json:
        emit(
            {
                "verdict": proof.verdict,
                "footprint": footprint_of(resolve(read), ops.ops),
                "violations": proof.violations,
                "facts": proof.facts,
                "counterexample": found,
                "reason": proof.reason or None,
                "solver": solver.version(),
            }
        )
    elif not quiet:
        out.print(f"[bold]{proof.verdict}[/] ({solver.version()})")
        if proof.facts is not None:
            out.print(f"  by: {', '.join(proof.facts) or 'no fact at all'}", markup=False)
        for v in proof.violations:
            out.print(f"  {v.rule}{where(v)}: {v.message}", markup=False)
        if proof.reason:
            out.print(f"  {proof.reason}", markup=False)
        if found is not None:
            out.print(_in_words(found), markup=False)
    raise typer.Exit(EXIT[proof.verdict])


def _confirmed(contract: Contract, plan: Plan, proof: Proof) -> Proof:
    """The proof, or unknown where cvc5 gives the same question the other answer."""
    ob = resolve(contract)
    if validate(ob) or proof.verdict is Verdict.UNKNOWN:
        return proof
    answer = confirm_question(solver.smtlib(encode(ob, plan).script), proof=False)
    err.print(f"cvc5 answers {answer}")
    if answer is (Answer.SAT if proof.verdict is Verdict.LEGAL else Answer.UNSAT):
        reason = f"{proof.verdict} by {solver.version()}, and cvc5 answers {answer}"
        return Proof(verdict=Verdict.UNKNOWN, reason=reason)
    return proof


def _in_words(witness: Witness) -> str:
    shows, size = witness.shows, len(witness.plan.ops)
    head = f"  counterexample with {size} {'op' if size == 1 else 'ops'}: "
    at = "" if shows.op is None else f"op {shows.op + 1}: "
    match shows.kind:
        case "difference":
            return (
                f"{head}{shows.endpoint} observes {shows.surface} {list(shows.observed or ())}, "
                f"the reference gives {list(shows.expected or ())}"
            )
        case "missing":
            return f"{head}{shows.endpoint} ends without {shows.surface}"
        case "fault":
            return f"{head}{at}{shows.says}"
        case "condition":
            return f"{head}{at}runs, and breaks {shows.rule}: {shows.says}"
        case "rejected":
            return f"  the contract is rejected: {shows.says}"


def _theorem(dump: Path | None, confirm: bool, rlimit: int, as_json: bool, quiet: bool) -> None:
    asked = questions(lemmas())
    if dump is not None:
        for name, question in asked.items():
            io.write(dump / name, question.encode())
    found = list(prove_theorem(rlimit=rlimit))
    exact = list(prove_exact(rlimit=rlimit))
    second = (
        {name: confirm_question(question) for name, question in asked.items()} if confirm else {}
    )
    answers = [*(p.holds for p in found), *(e.answer for e in exact), *second.values()]
    stands = all(p.stands for p in found) and all(a is Answer.UNSAT for a in answers)
    unknown = not stands and Answer.SAT not in answers and Answer.UNKNOWN in answers
    if as_json:
        emit(
            {
                "theorem": "proved" if stands else "unknown" if unknown else "fails",
                "assumptions": ASSUMPTIONS,
                "lemmas": found,
                "projections": exact,
                "confirmed": second,
                "solver": solver.version(),
            }
        )
    elif not quiet:
        _print_theorem(found, exact, second)
        out.print("proved" if stands else "unknown" if unknown else "fails", style="bold")
    raise typer.Exit(0 if stands else 3 if unknown else 1)


def _print_theorem(found: list[Proved], exact: list[Exact], second: dict[str, Answer]) -> None:
    out.print("Assumed:")
    for assumption in ASSUMPTIONS:
        out.print(f"  - {assumption}", markup=False)
    out.print(f"Lemmas, for any number of endpoints, elements and ops ({solver.version()}):")
    for p in found:
        out.print(f"  {'holds' if p.stands else 'FAILS':<6} {p.name}: {p.says}", markup=False)
        for guard, answer in p.without.items():
            word = "implied by the others" if answer is Answer.UNSAT else "needed"
            out.print(f"         {word if answer is not Answer.UNKNOWN else answer}: {guard}")
    out.print("Projections, bit for bit:")
    for name in dict.fromkeys(e.lemma for e in exact):
        formats = ", ".join(f"{e.dtype} {e.answer}" for e in exact if e.lemma == name)
        out.print(f"  {name}: the negation is {formats}", markup=False)
    if second:
        agreed = sum(a is Answer.UNSAT for a in second.values())
        out.print(f"cvc5 proves {agreed} of {len(second)} lemmas, and checks its proofs")


def replay(
    witness: Annotated[Path, typer.Argument(metavar="WITNESS", help="Witness file.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a counterexample through the executable reference and compare with what it claims.

    Exit 0 where the run shows what the witness says, 1 where it does not, 2 on bad input.
    Example: `sembridge replay found.json`
    """
    try:
        read = decode_witness(io.read_bytes(witness))
    except BadInput as error:
        raise error.within(error.file or str(witness)) from None
    found = replay_witness(read)
    if as_json:
        emit(found)
    elif not quiet:
        out.print("confirmed" if found.confirmed else "not confirmed", style="bold")
        shown = Witness(
            contract=read.contract, plan=read.plan, tensors=read.tensors, shows=found.shows
        )
        for name, tensor in read.tensors.items():
            out.print(f"  {name} holds {list(tensor)}", markup=False)
        out.print(_in_words(shown), markup=False)
    raise typer.Exit(0 if found.confirmed else 1)


def judges(
    matrix: Annotated[bool, typer.Option("--matrix", help="The 72 cases.")] = False,
    edges: Annotated[bool, typer.Option("--edges", help="The 13 real edges.")] = False,
    family: Annotated[
        bool, typer.Option("--family", help="Every short op sequence of small contracts.")
    ] = False,
    cases: Annotated[
        Path | None, typer.Option(help="A folder of cases (contract.json, plan.json).")
    ] = None,
    random: Annotated[int, typer.Option(min=0, help="So many random pairs.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random pairs.")] = 0,
    judge: Annotated[
        list[str] | None,
        typer.Option(help="Judges to compare (repeat the option); all sane ones by default."),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="One judge more: run the plans on real ranks (needs torch)."),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put the same contracts and plans before every judge, and show where they disagree.

    Without a source of pairs, 1,000 random ones are drawn.
    `accept-all` and `reject-all` are judges that are wrong on purpose: comparing one with the
    checker must find disagreements.

    Exit 0 where they agree, 1 where they do not, 2 on bad input.

    Examples: `sembridge judges --matrix --edges` · `sembridge judges --random 10000` ·
    `sembridge judges --matrix --judge checker --judge accept-all` ·
    `sembridge judges --matrix --edges --live`
    """
    asked = tuple(judge or SANE) + (("live",) if live else ())
    chosen: dict[str, Any] = {
        name: SOURCES[name]()
        for name, wanted in (("matrix", matrix), ("edges", edges), ("family", family))
        if wanted
    }
    if cases is not None:
        chosen["cases"] = case_pairs(cases)
    if random or not chosen:
        chosen["random"] = draw_pairs(seed, random or 1000)
    found: dict[str, Agreement] = {}
    started = time.perf_counter()
    with progress(quiet or as_json) as report:
        for name, pairs in chosen.items():
            found[name] = compare(pairs, asked, progress=_ticking(report, name, quiet or as_json))
    seconds = round(time.perf_counter() - started, 3)
    if as_json:
        emit({"agreement": found, "solver": solver.version(), "volatile": {"seconds": seconds}})
    else:
        _print(found, quiet)
    raise typer.Exit(1 if any(a.disagreements for a in found.values()) else 0)


def _ticking(report: Any, name: str, silent: bool) -> Callable[[int], None] | None:
    """Progress of one source of pairs, whose number is not known; without a terminal, a line."""

    def said(n: int) -> None:
        if n == 1:
            err.print(f"pairs from {name}", markup=False)

    if report is None:
        return None if silent else said
    return lambda n: report(n, None, name)


def _print(found: dict[str, Agreement], quiet: bool) -> None:
    columns = ("pairs from", *next(iter(found.values())).judges, "count")
    rows = [(name, *o, n) for name, a in found.items() for o, n in a.opinions]
    if not quiet:
        out.print(table("Opinions", columns, rows))
    for name, a in found.items():
        out.print(f"{name}: {a.disagreements} disagreements in {a.pairs} pairs")
        for d in a.shown:
            said = ", ".join(f"{judge} says {opinion}" for judge, opinion in d.opinions.items())
            out.print(said, markup=False)
            out.print(io.encode(d.contract).decode(), markup=False)
            out.print(io.encode(d.plan).decode(), markup=False)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (prove, replay, judges):
        app.command()(command)
