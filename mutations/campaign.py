"""Campaigns: generate mutants, judge them, and say of each one class and the reason.

The checker is what is tested, never the truth: see :mod:`mutations.truth`. A mutant's id names
its subject, operators and ordinals, and replays it (``mutate --show ID``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from mutations.checkers import WEAKENINGS, accepts, broken, weakened
from mutations.operators import OPERATORS, STILLBORN
from mutations.subjects import Subject
from mutations.truth import NO_REFERENCE, NOT_RUN, Truth, judge, prover_installed
from sembridge import io
from sembridge.campaign import Engine, Progress, run_campaign
from sembridge.check import check
from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.obligations import resolve, validate
from sembridge.plan import AnyOp, Plan
from sembridge.reference import Outcome
from sembridge.rules import OBSERVATION
from sembridge.verdict import Verdict

ORDER_TWO_LIMIT = 100
"""Mutants of order two drawn for each subject, where no limit is given."""


class Class(StrEnum):
    """What became of a mutant; disjoint. Only the first two are kills."""

    KILLED = "killed for the expected rule"
    KILLED_OTHERWISE = "killed by another rule"
    EQUIVALENT = "equivalent"
    MISSED = "missed"
    OVERSTRICT = "overstrict"
    STILLBORN = "stillborn"
    UNKNOWN = "unknown"
    ERROR = "error"


KILLS = (Class.KILLED, Class.KILLED_OTHERWISE)

STATEMENTS: dict[str, str] = {
    "membership": "ops name endpoints of the contract, and somebody to deliver to",
    "availability": "an op reads what is held; an all_gather's members hold disjoint parts that "
    "make up the whole",
    "locality": "a send leaves its domain, and a native collective stays in one",
    "completion": "a projection reads a complete value",
    "projection": "a projection is the registered one, and reads the whole value",
    "reduction": "a reduction has the registered operator, and exactly the registered sources, "
    "each incomplete",
    "redelivery": "an op that delivers a part to an endpoint that has it is a redelivery",
    "contract.demand": "a contract that demands nobody is rejected",
    "contract.owner": "owners that no replica class joins are rejected",
    "contract.reduction": "a reduction over other than exactly the producers of a partial "
    "placement is rejected",
    "contract.projection": "a projection that the value cannot carry is rejected",
    "contract.observation": "a projected surface over partials that nothing completes is rejected",
}
"""What the plan semantics (§3.3) and static validation (§3.5) forbid by themselves, whether or
not a consumer observes it: why a mutant may be rejected although every observation is right."""


class Mutant(Struct, frozen=True, kw_only=True):
    """A mutated contract and plan."""

    id: str
    operators: tuple[str, ...]
    contract: Contract
    plan: Plan


class Record(Struct, frozen=True, kw_only=True):
    """One mutant judged: rule names and ids, the judges' words, the class and why.

    ``accepted_by`` names the weakened checkers that accept it.
    """

    id: str
    operators: tuple[str, ...]
    outcome: Class
    rules: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    execution: str = NOT_RUN
    proof: str = NOT_RUN
    wrong: tuple[str, ...] = ()
    why: str = ""
    accepted_by: tuple[str, ...] = ()

    @property
    def unexplained(self) -> bool:
        """Rejected, right in every observation, and no statement asks for the rejection."""
        return self.outcome is Class.OVERSTRICT and not self.why


class Options(Struct, frozen=True, kw_only=True):
    """What a campaign runs: operator names, order 1 or 2, mutants a subject at most, judges."""

    operators: tuple[str, ...] = tuple(OPERATORS)
    order: int = 1
    limit: int | None = None
    seed: int = 0
    prove: bool = False
    checkers: bool = True


class Task(Struct, frozen=True, kw_only=True):
    """One subject and what to do with it."""

    subject: Subject
    options: Options

    @property
    def key(self) -> str:
        """Tells tasks of different campaigns apart, so that a journal is not mixed up."""
        digest = hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]
        return f"{self.subject.name} {digest}"


class Judged(Struct, frozen=True, kw_only=True):
    """A subject's records; ``insane`` names the judges that its unmutated plan does not pass."""

    subject: str
    insane: tuple[str, ...]
    records: tuple[Record, ...]


# Generation -------------------------------------------------------------------------------------


def mutants_of(subject: Subject, names: Iterable[str]) -> Iterator[Mutant]:
    """Every mutant of order one, in registry order; what changes nothing is left out."""
    yield from _applied(
        Mutant(id=subject.name, operators=(), contract=subject.contract, plan=subject.plan), names
    )


def _applied(base: Mutant, names: Iterable[str]) -> Iterator[Mutant]:
    ob = resolve(base.contract)
    joined = "+" if base.operators else ":"
    for name in names:
        operator = OPERATORS[name]
        for n, made in enumerate(operator.make(ob, base.plan)):
            contract, plan = base.contract, base.plan
            if operator.on == "plan":
                plan = made
            else:
                contract = made
            if plan != base.plan or contract != base.contract:
                yield Mutant(
                    id=f"{base.id}{joined}{name}:{n}",
                    operators=(*base.operators, name),
                    contract=contract,
                    plan=plan,
                )


def generate(task: Task) -> list[Mutant]:
    """The mutants of one task; what is drawn depends on the seed and the subject alone."""
    options = task.options
    first = list(mutants_of(task.subject, options.operators))
    random = Random(f"{options.seed}/{task.subject.name}")
    if options.order == 1:
        if options.limit is None or options.limit >= len(first):
            return first
        return [first[i] for i in sorted(random.sample(range(len(first)), options.limit))]
    bases = [m for m in first if OPERATORS[m.operators[0]].expects != (STILLBORN,)]
    drawn: dict[str, Mutant] = {}
    wanted = options.limit or ORDER_TWO_LIMIT
    for _ in range(4 * wanted if bases else 0):
        made = list(_applied(random.choice(bases), [random.choice(options.operators)]))
        if made:
            chosen = random.choice(made)
            drawn.setdefault(chosen.id, chosen)
        if len(drawn) == wanted:
            break
    return [drawn[key] for key in sorted(drawn)]


_ID = re.compile(r"^(?P<subject>.*):(?P<steps>[a-z0-9-]+:\d+(?:\+[a-z0-9-]+:\d+)*)$", re.DOTALL)


def _parts(mutant_id: str) -> tuple[str, list[str]]:
    match = _ID.match(mutant_id)
    if match is None:
        raise BadInput(f"{mutant_id!r} is no mutant's id: SUBJECT:OPERATOR:N[+OPERATOR:N]")
    return match["subject"], match["steps"].split("+")


def subject_named_in(mutant_id: str) -> str:
    """The name of the subject that a mutant's id starts with.

    Raises:
        BadInput: it is no mutant's id.
    """
    return _parts(mutant_id)[0]


def mutant_of(mutant_id: str, subject: Subject) -> Mutant:
    """The mutant of ``subject`` that an id stands for.

    Raises:
        BadInput: no such operator or mutant.
    """
    name, steps = _parts(mutant_id)
    if name != subject.name:
        raise BadInput(f"{mutant_id!r} is no mutant of {subject.name!r}")
    found = Mutant(id=subject.name, operators=(), contract=subject.contract, plan=subject.plan)
    for step in steps:
        name = step.rpartition(":")[0]
        wanted = f"{found.id}{'+' if found.operators else ':'}{step}"
        if name not in OPERATORS:
            raise BadInput(f"no operator {name!r}")
        made = next((m for m in _applied(found, [name]) if m.id == wanted), None)
        if made is None:
            raise BadInput(f"no mutant {wanted!r}")
        found = made
    return found


def choose_operators(names: Sequence[str]) -> tuple[str, ...]:
    """Operator names in registry order; all of them where none is named.

    Raises:
        BadInput: a name that is none.
    """
    for name in names:
        if name not in OPERATORS:
            raise BadInput(f"no operator {name!r}; `mutate --list` lists them")
    return tuple(name for name in OPERATORS if not names or name in set(names))


# Judging ----------------------------------------------------------------------------------------


def expected(mutant: Mutant) -> frozenset[str]:
    """Rules that one of the operators expects."""
    return frozenset(rule for name in mutant.operators for rule in OPERATORS[name].expects)


def judge_mutant(subject: Subject, mutant: Mutant, *, prove: bool = False) -> Record:
    """Class and reason of one mutant. A crash is an error, never a kill."""

    def record(outcome: Class, **fields: Any) -> Record:
        return Record(id=mutant.id, operators=mutant.operators, outcome=outcome, **fields)

    try:
        io.decode_contract(io.encode(mutant.contract))
        io.decode_plan(io.encode(mutant.plan))
    except BadInput as error:
        return record(Class.STILLBORN, why=str(error))
    try:
        ob = resolve(mutant.contract)
        rejected = sorted({v.rule for v in validate(ob)})
        report = check(mutant.contract, mutant.plan)
        ids = rejected or sorted(broken(ob, mutant.plan))
        truth = judge(ob, mutant.plan, rejected=bool(rejected), prove=prove)
    except Exception as error:
        return record(Class.ERROR, why=f"{type(error).__name__}: {error}")
    rules = sorted({v.rule for v in report.violations})
    awaited = expected(mutant)
    wrong = truth.wrong
    if awaited.intersection(rejected):
        wrong = (*wrong, NO_REFERENCE)
    legal = report.verdict is Verdict.LEGAL
    if legal and truth.proof == Verdict.ILLEGAL and not wrong:
        wrong = ("proof",)
    outcome, why = _class(subject, mutant, truth, wrong, rules, ids, legal)
    return record(
        outcome,
        rules=tuple(rules),
        broken=tuple(ids),
        execution=truth.execution,
        proof=truth.proof,
        wrong=wrong,
        why=why,
    )


def _class(
    subject: Subject,
    mutant: Mutant,
    truth: Truth,
    wrong: tuple[str, ...],
    rules: list[str],
    ids: list[str],
    legal: bool,
) -> tuple[Class, str]:
    if wrong and legal:
        return Class.MISSED, f"accepted, and wrong: {', '.join(wrong)}"
    if wrong:
        if expected(mutant).intersection(rules):
            return Class.KILLED, ""
        return Class.KILLED_OTHERWISE, f"expected {' or '.join(sorted(expected(mutant))) or 'none'}"
    if truth.execution != Outcome.EQUAL and truth.proof not in (Verdict.LEGAL, Verdict.ILLEGAL):
        return Class.UNKNOWN, "no judge could run it"
    if legal:
        return Class.EQUIVALENT, _reason(subject, mutant, truth)
    if truth.proof == Verdict.LEGAL:
        return Class.OVERSTRICT, ""
    # What an op does wrong is reason enough; that its effect is missing later only follows.
    forbidden = {i.partition("/")[0] for i in ids if f"/{OBSERVATION}" not in i}
    return Class.OVERSTRICT, "; ".join(STATEMENTS[rule] for rule in STATEMENTS if rule in forbidden)


def _reason(subject: Subject, mutant: Mutant, truth: Truth) -> str:
    if mutant.contract == subject.contract and canonical(mutant.plan) == canonical(subject.plan):
        return "the same program up to order"
    if truth.proof == Verdict.LEGAL:
        return "proved legal, and executed equal"
    return "executed equal"


def canonical(plan: Plan) -> tuple[Any, ...]:
    """A plan as a program: its ops up to their order, and to the order inside their lists."""

    def plain(op: AnyOp) -> bytes:
        fields: dict[str, Any] = msgspec.structs.asdict(op)
        for name in ("dsts", "members", "sources", "targets"):
            if name in fields:
                fields[name] = sorted(fields[name])
        return msgspec.json.encode((type(op).__name__, fields))

    return plan.contract, plan.tag, tuple(sorted(plain(op) for op in plan.ops))


def sanity(subject: Subject, *, prove: bool) -> tuple[str, ...]:
    """The judges that do not pass the unmutated plan; empty for a sane subject."""
    ob = resolve(subject.contract)
    truth = judge(ob, subject.plan, rejected=False, prove=prove)
    passes = {
        "checker": check(subject.contract, subject.plan).verdict is Verdict.LEGAL,
        "execution": truth.execution in (NOT_RUN, Outcome.EQUAL),
        "delivery": "redelivery" not in truth.wrong,
        "identity": "identity" not in truth.wrong,
        "proof": truth.proof in (NOT_RUN, Verdict.LEGAL),
    }
    return tuple(name for name, passed in passes.items() if not passed)


def judge_subject(task: Task) -> Judged:
    """Generate and judge the mutants of one subject, under every weakened checker as well."""
    subject, options = task.subject, task.options
    mutants = generate(task)
    records = [judge_mutant(subject, m, prove=options.prove) for m in mutants]
    if options.checkers:
        records = _under_weakened_checkers(mutants, records)
    return Judged(
        subject=subject.name,
        insane=sanity(subject, prove=options.prove),
        records=tuple(records),
    )


def _under_weakened_checkers(mutants: list[Mutant], records: list[Record]) -> list[Record]:
    """Fill ``accepted_by``: a weakened plan rule cannot matter to a rejected contract."""
    accepted: dict[str, list[str]] = {r.id: [] for r in records}
    rejected = [
        (m, resolve(m.contract))
        for m, r in zip(mutants, records, strict=True)
        if r.outcome in (*KILLS, Class.OVERSTRICT)
    ]
    of_contract = [(m, ob) for m, ob in rejected if validate(ob)]
    of_plan = [(m, ob) for m, ob in rejected if not validate(ob)]
    for name, weakening in WEAKENINGS.items():
        with weakened(weakening):
            for m, ob in of_contract if name.startswith("contract.") else of_plan:
                if not validate(ob) if name.startswith("contract.") else accepts(ob, m.plan):
                    accepted[m.id].append(name)
    return [
        msgspec.structs.replace(r, accepted_by=tuple(accepted[r.id])) if accepted[r.id] else r
        for r in records
    ]


def run(
    subjects: Iterable[Subject],
    options: Options,
    *,
    engine: Engine = "local",
    jobs: int | None = None,
    scheduler: str | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
) -> list[Judged]:
    """A campaign over subjects: the same records whatever the engine; resumable by journal.

    Raises:
        BadInput: a proof was asked for and the SMT model is not installed; an engine, journal or
            number of jobs that cannot be.
    """
    if options.prove and not prover_installed():
        raise BadInput("the SMT model is not installed here")
    return run_campaign(
        [Task(subject=subject, options=options) for subject in subjects],
        judge_subject,
        key=lambda task: task.key,
        result=Judged,
        engine=engine,
        jobs=jobs,
        scheduler=scheduler,
        journal=journal,
        progress=progress,
    )
