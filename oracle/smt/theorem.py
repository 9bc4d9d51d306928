"""Proposition 1 for every size: lemmas over uninterpreted endpoints, elements, names and values.

A state satisfies the *invariant* where every element that an endpoint holds, complete, is the
reference's: an element of one of the producers it is said to derive from, or of the registered
reduction; where it was issued by whom it is said to be; where producers keep their own partials
until they are reduced; and where a projected result was projected, by the registered projection,
from such a value. The lemmas: the invariant holds at the start; each op preserves it under the
checker's conditions; and it implies the observation under the conditions at the end. Induction
over the plan's ops does the rest. Nothing in a lemma knows how many endpoints, elements or ops
there are. Combines of projected shards are outside; that argmax's is exact is proven by itself,
in :mod:`oracle.smt.projections`.

The conditions are the checker's own where they are predicates over single values: the functions
of :mod:`sembridge.guards`, read over solver terms. What is said of sets of elements (a sender
holds what it sends, a receiver lacks it, slices tile) is said here over predicates, and in the
checker over lists of intervals; differential tests tie the two.

Sorts stand in the order Endpoint, Element < Name < Domain, Value; every function leads upwards,
so that finitely many terms can be built and the lemmas are decidable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from oracle.smt import solver
from oracle.smt.model import conj
from oracle.smt.solver import Answer, Script
from sembridge import guards, rules
from sembridge.rules import Rule

ASSUMPTIONS: tuple[str, ...] = (
    "Graph and runtime facts are true: producers of one class hold equal values, the reduction's "
    "operator and sources are the partial placement's, owners are the owners.",
    "The contract passed static validation: a reduction is registered exactly where the placement "
    "is partial, its sources are all producers, and several owners share a class.",
    "A registered projection is a function: equal values give equal results on every stack.",
    "A native collective delivers correctly inside one domain; nothing is assumed of one that "
    "spans two. A carrier delivers correctly between two domains; nothing is assumed inside one.",
    "A registered reduction of all registered sources, each once and each with its own partial, "
    "is the reference's value (in exact arithmetic: rounding may depend on order).",
    "Delivery is reliable, and a receiver accepts frames of the expected tag only.",
    "A replicate placement authorizes a whole assembled from several producers' slices.",
)
"""What the theorem takes for granted, in words (the paper's assumptions, made precise)."""


# Terms that the guards can be read over ----------------------------------------------------------


class Term:
    """An SMT-LIB term with the operators that :mod:`sembridge.guards` uses."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self.text = text

    def __and__(self, other: Any) -> Term:
        return Term(f"(and {self.text} {_text(other)})")

    def __or__(self, other: Any) -> Term:
        return Term(f"(or {self.text} {_text(other)})")

    def __xor__(self, other: Any) -> Term:
        return Term(f"(xor {self.text} {_text(other)})")

    def __eq__(self, other: object) -> Any:
        return Term(f"(= {self.text} {_text(other)})")

    def __ne__(self, other: object) -> Any:
        return Term(f"(not (= {self.text} {_text(other)}))")


class Names:
    """A set of names, as the formula that says that ``n`` is one of them."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, member: str) -> None:
        self.member = member

    def __le__(self, other: Names) -> Term:
        return Term(f"(forall ((n Name)) (=> {self.member} {other.member}))")

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, Names)
        return Term(f"(forall ((n Name)) (= {self.member} {other.member}))")


def _text(value: object) -> str:
    if isinstance(value, Term):
        return value.text
    assert isinstance(value, bool), value
    return "true" if value else "false"


# Contract, state, invariant ----------------------------------------------------------------------

SORTS = ("Endpoint", "Element", "Name", "Domain", "Value", "Operator", "Projection", "Tag")

CONTRACT: tuple[str, ...] = (
    *(f"(declare-sort {sort} 0)" for sort in SORTS),
    "(declare-fun name (Endpoint) Name)",
    "(declare-fun domain (Endpoint) Domain)",
    "(declare-fun mapped (Endpoint) Name)",
    "(declare-fun own (Name Element) Value)",
    "(declare-fun reduced-value (Element) Value)",
    "(declare-fun producer (Name) Bool)",
    "(declare-fun owner (Name) Bool)",
    "(declare-fun summand (Name) Bool)",
    "(declare-fun classed (Name Name) Bool)",
    "(declare-const reduced Bool)",
    "(declare-const authority Bool)",
    "(declare-const replicate Bool)",
    "(declare-const operator Operator)",
    "(declare-const projection Projection)",
    "(assert (forall ((x Endpoint) (y Endpoint)) (=> (= (name x) (name y)) (= x y))))",
    "(assert (forall ((m Name) (n Name) (i Element)) (=> (classed m n) (= (own m i) (own n i)))))",
    "(assert (=> reduced (forall ((n Name)) (= (summand n) (producer n)))))",
    "(assert (=> reduced (not replicate)))",
    "(assert (forall ((m Name) (n Name)) (=> (and (owner m) (owner n)) (classed m n))))",
)
"""The contract's vocabulary, and what its facts and its validation say."""

VALUE_STATE = {
    "has": ("(Endpoint)", "Bool"),
    "held": ("(Endpoint Element)", "Bool"),
    "value": ("(Endpoint Element)", "Value"),
    "complete": ("(Endpoint)", "Bool"),
    "source": ("(Endpoint Name)", "Bool"),
    "issuer": ("(Endpoint Name)", "Bool"),
    "origin": ("(Endpoint Element)", "Name"),
    "issued-by": ("(Endpoint Element)", "Name"),
}
"""The checker's state of the value; ``origin`` and ``issued-by`` are what it speaks about."""

RESULT_STATE = {
    "r-has": ("(Endpoint)", "Bool"),
    "r-argument": ("(Endpoint Element)", "Value"),
    "r-projection": ("(Endpoint)", "Projection"),
    "r-source": ("(Endpoint Name)", "Bool"),
    "r-issuer": ("(Endpoint Name)", "Bool"),
    "r-origin": ("(Endpoint Element)", "Name"),
    "r-issued-by": ("(Endpoint Element)", "Name"),
}
"""The state of a projected result, which is known by the value it was projected from."""

ARGUMENTS = {"Endpoint": "x", "Element": "i", "Name": "n"}


def value_invariant(s: str = "") -> str:
    """The invariant of the value, in the state whose functions end with ``s``."""
    at, real = "((x Endpoint) (i Element))", f"(and (held{s} x i) (complete{s} x))"
    return conj(
        [
            f"(forall {at} (=> (held{s} x i) (has{s} x)))",
            f"(forall {at} (=> (producer (name x)) (held{s} x i)))",
            f"(forall {at} (=> (and {real} (not reduced)) (and (source{s} x (origin{s} x i))"
            f" (= (value{s} x i) (own (origin{s} x i) i)))))",
            f"(forall {at} (=> (and {real} reduced) (= (value{s} x i) (reduced-value i))))",
            f"(forall {at} (=> {real} (issuer{s} x (issued-by{s} x i))))",
            f"(forall {at} (=> (and (producer (name x)) (not (complete{s} x)))"
            f" (= (value{s} x i) (own (name x) i))))",
        ]
    )


def result_invariant(s: str = "") -> str:
    """The invariant of a projected result."""
    at, there = "((x Endpoint) (i Element))", f"(r-has{s} x)"
    return conj(
        [
            f"(forall {at} (=> (and {there} (not reduced)) (and (r-source{s} x (r-origin{s} x i))"
            f" (= (r-argument{s} x i) (own (r-origin{s} x i) i)))))",
            f"(forall {at} (=> (and {there} reduced) (= (r-argument{s} x i) (reduced-value i))))",
            f"(forall {at} (=> {there} (r-issuer{s} x (r-issued-by{s} x i))))",
            f"(forall ((x Endpoint)) (=> {there} (= (r-projection{s} x) projection)))",
        ]
    )


# Lemmas ------------------------------------------------------------------------------------------


class Guard(Struct, frozen=True, kw_only=True):
    """One condition of the checker: which of its rules, and what it says in this lemma."""

    name: str
    rules: tuple[Rule, ...]
    formula: str


class Lemma(Struct, frozen=True, kw_only=True):
    """Under ``given`` and every guard, ``goal`` holds.

    ``implied`` names guards that the others imply in every state that satisfies the invariant:
    the lemma holds without them.
    """

    name: str
    says: str
    given: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    goal: str
    implied: tuple[str, ...] = ()

    def script(self, *, negated: bool = True) -> Script:
        """The question whether the lemma has a counterexample; its facts are the guards.

        Without the ``negated`` goal it asks whether the hypotheses have a model at all.
        """
        claim = (f"(assert (not {self.goal}))",) if negated else ()
        return Script(
            logic="UF",
            body=(*CONTRACT, *self.given, *claim),
            facts={g.name: (g.formula,) for g in self.guards},
        )


def _declared(state: dict[str, tuple[str, str]]) -> list[str]:
    return [f"(declare-fun {f} {takes} {gives})" for f, (takes, gives) in state.items()]


def _after(state: dict[str, tuple[str, str]], **becomes: str) -> list[str]:
    """Definitions of the state after an op (functions that end with ``'``)."""
    lines: list[str] = []
    for f, (takes, gives) in state.items():
        sorts = takes.strip("()").split()
        names = [ARGUMENTS[sort] for sort in sorts]
        args = " ".join([f"({a} {sort})" for a, sort in zip(names, sorts, strict=True)])
        body = becomes.get(f.replace("-", "_"), f"({f} {' '.join(names)})")
        lines.append(f"(define-fun {f}+ ({args}) {gives} {body})")
    return lines


def _term(function: str, x: str) -> Term:
    return Term(f"({function} {x})")


def _each(members: str, formula: Term) -> str:
    """``formula`` of every ``x`` for which ``members`` holds."""
    return f"(forall ((x Endpoint)) (=> ({members} x) {formula.text}))"


def _guard(name: str, *of: Rule, formula: Term | str) -> Guard:
    return Guard(
        name=name, rules=of, formula=formula.text if isinstance(formula, Term) else formula
    )


JUNK = "(declare-fun junk (Endpoint Element) Value)"
"""What arrives where nothing is assumed of the transport."""

ROOT = "(declare-const s Endpoint)"
RECEIVER = "(declare-const d Endpoint)"

CARRIED = "(not (= (domain x) (domain s)))"
"""Where a carrier is assumed to deliver correctly."""

NATIVE = "(= (domain x) (domain s))"
"""Where a native collective is assumed to deliver correctly."""


def _delivered(to: str, what: str, trusted: str) -> list[str]:
    """The value's state after ``s`` delivered its elements ``what`` to every ``x`` of ``to``."""
    arrives, stays = f"(and {to} {what})", f"(or (has x) (not {to}))"

    def united(names: str) -> str:
        return f"(or (and {stays} ({names} x n)) (and {to} ({names} s n)))"

    return _after(
        VALUE_STATE,
        has=f"(or (has x) {to})",
        held=f"(or (held x i) {arrives})",
        value=f"(ite {arrives} (ite {trusted} (value s i) (junk x i)) (value x i))",
        # A copy in pieces is as complete as the elements that it is made of.
        complete=f"(ite {to} (forall ((i Element)) (and (=> (and (has x) (held x i)) (complete x))"
        f" (=> {what} (complete s)))) (complete x))",
        source=united("source"),
        issuer=united("issuer"),
        origin=f"(ite {arrives} (origin s i) (origin x i))",
        issued_by=f"(ite {arrives} (issued-by s i) (issued-by x i))",
    )


def _delivered_result(to: str, trusted: str) -> list[str]:
    """The result's state after ``s`` delivered it whole to every ``x`` of ``to``."""

    def copied(f: str, args: str, otherwise: str = "") -> str:
        moved = f"({f} s{args})"
        if otherwise:
            moved = f"(ite (and {trusted} (not sliced)) {moved} {otherwise})"
        return f"(ite {to} {moved} ({f} x{args}))"

    return _after(
        RESULT_STATE,
        r_has=f"(or (r-has x) {to})",
        r_argument=copied("r-argument", " i", "(junk x i)"),
        r_projection=copied("r-projection", ""),
        r_source=copied("r-source", " n"),
        r_issuer=copied("r-issuer", " n"),
        r_origin=copied("r-origin", " i"),
        r_issued_by=copied("r-issued-by", " i"),
    )


TYPED: tuple[Rule, ...] = (
    rules.SEND_ENDS,
    rules.BROADCAST_ENDS,
    rules.PROJECT_AT,
    rules.PROJECT_TAKES,
    rules.REDUCE_ENDS,
    rules.GATHER_ENDS,
)
"""Rules that the sorts express: here an op can name nothing but endpoints of the contract, and a
projection is a function of the value, its parameters being the contract's wherever they are held.
"""


LEMMAS: list[Callable[[], Lemma]] = []
"""The theorem's lemmas. To add one, add one decorated function."""


def lemma(build: Callable[[], Lemma]) -> Callable[[], Lemma]:
    """Register a lemma."""
    LEMMAS.append(build)
    return build


@lemma
def _start() -> Lemma:
    initial = {
        "has": "(producer (name x))",
        "held": "(producer (name x))",
        "value": "(own (name x) i)",
        "complete": "(not reduced)",
        "source": "(= n (name x))",
        "issuer": "(= n (name x))",
        "origin": "(name x)",
        "issued_by": "(name x)",
    }
    return Lemma(
        name="start",
        says="at the start every producer holds its own value, and nobody a projected result",
        given=(
            *_declared(VALUE_STATE),
            *_declared(RESULT_STATE),
            *_after(VALUE_STATE, **initial),
            *_after(RESULT_STATE, r_has="false"),
        ),
        goal=f"(and {value_invariant('+')} {result_invariant('+')})",
    )


@lemma
def _send_value() -> Lemma:
    return Lemma(
        name="send a value",
        says="a slice or the whole of the value, sent between domains, keeps the invariant",
        given=(
            *_declared(VALUE_STATE),
            ROOT,
            RECEIVER,
            JUNK,
            "(declare-fun slice (Element) Bool)",
            "(declare-const e Element)",
            f"(assert {value_invariant()})",
            *_delivered("(= x d)", "(slice i)", CARRIED),
        ),
        guards=(
            _guard(
                "it crosses domains",
                rules.SEND_CROSSES,
                formula=guards.crosses(_term("domain", "s"), _term("domain", "d")),
            ),
            _guard(
                "the sender holds the slice",
                rules.SENDER_HOLDS,
                formula="(forall ((i Element)) (=> (slice i) (held s i)))",
            ),
            _guard(
                "the receiver lacks the slice",
                rules.SEND_ONCE,
                formula="(and (=> (has d) (slice e))"
                " (forall ((i Element)) (not (and (slice i) (held d i)))))",
            ),
        ),
        goal=f"(and {value_invariant('+')}"
        " (forall ((i Element)) (=> (slice i) (and (held s i) (not (held d i))))))",
    )


@lemma
def _broadcast_value() -> Lemma:
    return Lemma(
        name="broadcast a value",
        says="what the root holds of the value, broadcast inside its domain, keeps the invariant",
        given=(
            *_declared(VALUE_STATE),
            ROOT,
            JUNK,
            "(declare-fun to (Endpoint) Bool)",
            "(declare-const e Element)",
            f"(assert {value_invariant()})",
            *_delivered("(to x)", "(held s i)", NATIVE),
        ),
        guards=(
            _guard(
                "it stays inside one domain",
                rules.BROADCAST_INSIDE,
                formula=_each("to", guards.inside(_term("domain", "x"), _term("domain", "s"))),
            ),
            _guard(
                "the root holds something",
                rules.ROOT_HOLDS,
                formula="(has s)",
            ),
            _guard(
                "the receivers lack it",
                rules.BROADCAST_ONCE,
                formula="(forall ((x Endpoint) (i Element)) (=> (to x)"
                " (and (=> (has x) (held s e)) (not (and (held s i) (held x i))))))",
            ),
        ),
        goal=f"(and {value_invariant('+')} (has s) (forall ((x Endpoint) (i Element))"
        " (=> (and (to x) (held s i)) (not (held x i)))))",
    )


@lemma
def _gather_value() -> Lemma:
    return Lemma(
        name="all_gather a value",
        says="disjoint slices that make up the whole, pooled inside one domain, keep the invariant",
        given=(
            *_declared(VALUE_STATE),
            ROOT,
            JUNK,
            "(declare-fun member (Endpoint) Bool)",
            "(declare-fun holder (Element) Endpoint)",
            "(declare-const all-complete Bool)",
            "(assert (member s))",
            f"(assert {value_invariant()})",
            # The pooled copy is complete where every element that a member brings is.
            "(assert (= all-complete (forall ((x Endpoint) (i Element))"
            " (=> (and (member x) (held x i)) (complete x)))))",
            *_after(
                VALUE_STATE,
                has="(or (has x) (member x))",
                held="(or (held x i) (member x))",
                value=f"(ite (member x) (ite {NATIVE} (value (holder i) i) (junk x i))"
                " (value x i))",
                complete="(ite (member x) all-complete (complete x))",
                source="(ite (member x) (exists ((y Endpoint)) (and (member y) (source y n)))"
                " (source x n))",
                issuer="(ite (member x) (exists ((y Endpoint)) (and (member y) (issuer y n)))"
                " (issuer x n))",
                origin="(ite (member x) (origin (holder i) i) (origin x i))",
                issued_by="(ite (member x) (issued-by (holder i) i) (issued-by x i))",
            ),
        ),
        guards=(
            _guard(
                "it stays inside one domain",
                rules.GATHER_INSIDE,
                formula=_each("member", guards.inside(_term("domain", "x"), _term("domain", "s"))),
            ),
            _guard(
                "every member holds something",
                rules.GATHER_READS,
                formula="(forall ((x Endpoint)) (=> (member x) (has x)))",
            ),
            _guard(
                "the slices make up the whole",
                rules.GATHER_WHOLE,
                formula="(forall ((i Element)) (and (member (holder i)) (held (holder i) i)))",
            ),
            _guard(
                "the slices are disjoint",
                rules.GATHER_WHOLE,
                formula="(forall ((x Endpoint) (y Endpoint) (i Element)) (=> (and (member x)"
                " (member y) (held x i) (held y i)) (= x y)))",
            ),
        ),
        goal=f"(and {value_invariant('+')} (forall ((x Endpoint)) (=> (member x) (has x)))"
        " (forall ((x Endpoint) (i Element)) (=> (and (member x) (held x i)) (= x (holder i)))))",
    )


@lemma
def _reduce() -> Lemma:
    together = "(forall ((x Endpoint)) (=> (or (from x) (to x)) (= (domain x) (domain s))))"
    partials = (
        "(forall ((x Endpoint) (i Element)) (=> (from x)"
        " (and (held x i) (= (value x i) (own (name x) i)))))"
    )
    inside = guards.inside(_term("domain", "x"), _term("domain", "s"))
    return Lemma(
        name="reduce",
        says="the registered reduction of every producer's partial gives the reference's value",
        given=(
            *_declared(VALUE_STATE),
            ROOT,
            "(declare-fun from-name (Name) Bool)",
            "(define-fun from ((x Endpoint)) Bool (from-name (name x)))",
            "(declare-fun to (Endpoint) Bool)",
            "(declare-fun result (Element) Value)",
            "(declare-const by Operator)",
            "(declare-const once Bool)",
            f"(assert {value_invariant()})",
            # What is assumed of a native reduction, and of nothing less.
            f"(assert (=> (and {together} (= by operator) once {partials}"
            " (forall ((x Endpoint)) (=> (producer (name x)) (from x)))"
            " (forall ((x Endpoint)) (=> (from x) (producer (name x)))))"
            " (forall ((i Element)) (= (result i) (reduced-value i)))))",
            *_after(
                VALUE_STATE,
                has="(or (has x) (to x))",
                held="(or (held x i) (to x))",
                value="(ite (to x) (result i) (value x i))",
                complete="(or (to x) (complete x))",
                source="(ite (to x) (exists ((y Endpoint)) (and (from y) (source y n)))"
                " (source x n))",
                issuer="(ite (to x) (= n (name x)) (issuer x n))",
                origin="(ite (to x) (name x) (origin x i))",
                issued_by="(ite (to x) (name x) (issued-by x i))",
            ),
        ),
        guards=(
            _guard(
                "it stays inside one domain",
                rules.REDUCE_INSIDE,
                formula=f"(and {_each('from', inside)} {_each('to', inside)})",
            ),
            _guard(
                "a reduction is outstanding",
                rules.REDUCE_OUTSTANDING,
                formula="reduced",
            ),
            _guard(
                "the operator is the registered one",
                rules.REDUCE_OPERATOR,
                formula=guards.registered(Term("by"), Term("operator")),
            ),
            _guard(
                "the sources are the registered ones",
                rules.REDUCE_SOURCES,
                formula=guards.exactly(Names("(from-name n)"), Names("(summand n)")),
            ),
            _guard(
                "each source is named once",
                rules.REDUCE_SOURCES,
                formula="once",
            ),
            _guard(
                "every source holds its value",
                rules.REDUCE_READS,
                formula="(forall ((x Endpoint) (i Element)) (=> (from x) (held x i)))",
            ),
            _guard(
                "every source is incomplete",
                rules.REDUCE_INCOMPLETE,
                formula=_each("from", guards.outstanding(_term("complete", "x"))),
            ),
            _guard(
                "the targets lack the result",
                rules.REDUCE_ONCE,
                formula="(forall ((x Endpoint)) (=> (and (to x) (has x)) (not (complete x))))",
            ),
        ),
        goal=f"(and {value_invariant('+')}"
        " (forall ((x Endpoint) (i Element)) (=> (from x) (held x i)))"
        " (forall ((x Endpoint) (i Element)) (=> (and (to x) (held x i)) (not (complete x)))))",
        implied=("every source holds its value",),
    )


@lemma
def _project() -> Lemma:
    at = "(= x s)"
    return Lemma(
        name="project",
        says="the registered projection of a whole and complete value is the reference's result",
        given=(
            *_declared(VALUE_STATE),
            *_declared(RESULT_STATE),
            ROOT,
            "(declare-const by Projection)",
            "(declare-const whole Bool)",
            "(assert (= whole (forall ((i Element)) (held s i))))",
            f"(assert {value_invariant()})",
            f"(assert {result_invariant()})",
            *_after(
                RESULT_STATE,
                r_has=f"(or (r-has x) {at})",
                r_argument=f"(ite {at} (value x i) (r-argument x i))",
                r_projection=f"(ite {at} by (r-projection x))",
                r_source=f"(ite {at} (source x n) (r-source x n))",
                r_issuer=f"(ite {at} (issuer x n) (r-issuer x n))",
                r_origin=f"(ite {at} (origin x i) (r-origin x i))",
                r_issued_by=f"(ite {at} (issued-by x i) (r-issued-by x i))",
            ),
        ),
        guards=(
            _guard(
                "the value is there",
                rules.PROJECT_READS,
                formula="(has s)",
            ),
            _guard(
                "the value is whole",
                rules.PROJECT_WHOLE,
                formula="whole",
            ),
            _guard(
                "the value is complete",
                rules.PROJECT_COMPLETE,
                formula="(complete s)",
            ),
            _guard(
                "the projection is the registered one",
                rules.PROJECT_REGISTERED,
                formula=guards.registered(Term("by"), Term("projection")),
            ),
            _guard(
                "the result is not there yet",
                rules.PROJECT_ONCE,
                formula="(not (r-has s))",
            ),
        ),
        goal=f"(and {result_invariant('+')} (has s) (not (r-has s)))",
        implied=("the value is there",),
    )


@lemma
def _send_result() -> Lemma:
    return Lemma(
        name="send a result",
        says="a projected result, sent whole between domains, keeps the invariant",
        given=(
            *_declared(RESULT_STATE),
            ROOT,
            RECEIVER,
            JUNK,
            "(declare-const sliced Bool)",
            f"(assert {result_invariant()})",
            *_delivered_result("(= x d)", CARRIED),
        ),
        guards=(
            _guard(
                "it crosses domains",
                rules.SEND_CROSSES,
                formula=guards.crosses(_term("domain", "s"), _term("domain", "d")),
            ),
            _guard(
                "the sender holds it",
                rules.SENDER_HOLDS,
                formula="(r-has s)",
            ),
            _guard(
                "it travels whole",
                rules.ONLY_VALUE_IN_SLICES,
                formula="(not sliced)",
            ),
            _guard(
                "the receiver lacks it",
                rules.SEND_ONCE,
                formula="(not (r-has d))",
            ),
        ),
        goal=f"(and {result_invariant('+')} (r-has s) (not (r-has d)))",
    )


@lemma
def _broadcast_result() -> Lemma:
    return Lemma(
        name="broadcast a result",
        says="a projected result, broadcast inside one domain, keeps the invariant",
        given=(
            *_declared(RESULT_STATE),
            ROOT,
            JUNK,
            "(define-fun sliced () Bool false)",
            "(declare-fun to (Endpoint) Bool)",
            f"(assert {result_invariant()})",
            *_delivered_result("(to x)", NATIVE),
        ),
        guards=(
            _guard(
                "it stays inside one domain",
                rules.BROADCAST_INSIDE,
                formula=_each("to", guards.inside(_term("domain", "x"), _term("domain", "s"))),
            ),
            _guard(
                "the root holds it",
                rules.ROOT_HOLDS,
                formula="(r-has s)",
            ),
            _guard(
                "the receivers lack it",
                rules.BROADCAST_ONCE,
                formula="(forall ((x Endpoint)) (=> (to x) (not (r-has x))))",
            ),
        ),
        goal=f"(and {result_invariant('+')} (r-has s)"
        " (forall ((x Endpoint)) (=> (to x) (not (r-has x)))))",
    )


@lemma
def _gather_result() -> Lemma:
    return Lemma(
        name="all_gather a result",
        says="results are never sliced: of disjoint members one alone holds it, and nothing moves",
        given=(
            *_declared(RESULT_STATE),
            ROOT,
            JUNK,
            "(define-fun sliced () Bool false)",
            "(declare-fun member (Endpoint) Bool)",
            "(assert (member s))",
            f"(assert {result_invariant()})",
            *_delivered_result("(member x)", NATIVE),
        ),
        guards=(
            _guard(
                "it stays inside one domain",
                rules.GATHER_INSIDE,
                formula=_each("member", guards.inside(_term("domain", "x"), _term("domain", "s"))),
            ),
            _guard(
                "every member holds it",
                rules.GATHER_READS,
                formula="(forall ((x Endpoint)) (=> (member x) (r-has x)))",
            ),
            _guard(
                "the members' results are disjoint",
                rules.GATHER_WHOLE,
                formula="(forall ((x Endpoint) (y Endpoint)) (=> (and (member x) (member y)"
                " (r-has x) (r-has y)) (= x y)))",
            ),
        ),
        goal=f"(and {result_invariant('+')}"
        " (forall ((x Endpoint)) (=> (member x) (and (r-has x) (= x s)))))",
        implied=("it stays inside one domain",),
    )


# The observation ---------------------------------------------------------------------------------


def _observed(state: str, value: str, held: str) -> tuple[list[str], list[Guard], str]:
    """Declarations, guards and goal of what ``c`` observes of one surface."""
    source, issuer = f"{state}source", f"{state}issuer"
    issued, derived = Names(f"({issuer} c n)"), Names(f"({source} c n)")
    owners, summands = Names("(owner n)"), Names("(summand n)")
    members = Names("(or (= n (mapped c)) (classed n (mapped c)))")
    authority = guards.issued_by_owner(issued, derived, owners, Term("reduced"))
    exact = guards.exactly(derived, summands)
    stands_in: Term = guards.substitutable(derived, members)
    reassembled: Term = guards.reassembled(Term("replicate"), Term("several"))
    found = [
        _guard(
            "an owner issued it",
            rules.OWNED,
            formula=f"(=> authority {authority.text})",
        ),
        _guard(
            "it derives from every summand",
            rules.ALL_SOURCES,
            formula=f"(=> reduced {exact.text})",
        ),
        _guard(
            "lineage or reassembly admits its sources",
            rules.LINEAGE,
            rules.MAPPED,
            formula=f"(or authority reduced {(reassembled | stands_in).text})",
        ),
    ]
    given = [
        "(declare-const c Endpoint)",
        "(declare-const several Bool)",
        f"(assert (= several (exists ((m Name) (n Name)) (and ({source} c m) ({source} c n)"
        " (not (= m n))))))",
    ]
    goal = (
        f"(forall ((i Element)) (and {held}"
        f" (=> reduced (= ({value} c i) (reduced-value i)))"
        f" (=> authority (owner ({state}issued-by c i)))"
        " (=> (and authority (not reduced))"
        f" (forall ((n Name)) (=> (owner n) (= ({value} c i) (own n i)))))"
        " (=> (and (not authority) (not reduced))"
        f" (or (= ({value} c i) (own (mapped c) i))"
        f" (and replicate several ({source} c ({state}origin c i))"
        f" (= ({value} c i) (own ({state}origin c i) i)))))"
        f" (=> reduced (forall ((n Name)) (= ({source} c n) (summand n))))))"
    )
    return given, found, goal


@lemma
def _observed_value() -> Lemma:
    given, found, goal = _observed("", "value", "(held c i)")
    return Lemma(
        name="observe a value",
        says="a demanded consumer that passes the conditions at the end observes the "
        "reference's value, whole and complete, of admissible sources and issuers",
        given=(*_declared(VALUE_STATE), f"(assert {value_invariant()})", *given),
        guards=(
            _guard(
                "it is whole",
                rules.COVERED,
                formula="(forall ((i Element)) (held c i))",
            ),
            _guard(
                "it is complete",
                rules.COMPLETED,
                formula="(complete c)",
            ),
            *found,
        ),
        goal=goal,
    )


@lemma
def _observed_result() -> Lemma:
    given, found, goal = _observed("r-", "r-argument", "(r-has c)")
    return Lemma(
        name="observe a result",
        says="a demanded consumer observes the registered projection of the reference's value",
        given=(*_declared(RESULT_STATE), f"(assert {result_invariant()})", *given),
        guards=(
            _guard(
                "it holds the surface asked for",
                rules.SURFACED,
                formula="(r-has c)",
            ),
            *found,
        ),
        goal=f"(and {goal} (= (r-projection c) projection))",
    )


@lemma
def _identity() -> Lemma:
    same = guards.registered(Term("planned"), Term("expected"))
    return Lemma(
        name="identity",
        says="frames of an accepted plan carry the tag that receivers of the contract expect",
        given=(
            "(declare-fun accepts (Tag) Bool)",
            "(declare-const expected Tag)",
            "(declare-const planned Tag)",
            "(declare-const named Bool)",
            "(assert (forall ((t Tag)) (= (accepts t) (and named (= t expected)))))",
        ),
        guards=(
            _guard(
                "the plan's tag is the contract's",
                rules.TAGGED,
                formula=same,
            ),
            _guard(
                "the plan names the contract",
                rules.NAMED,
                formula="named",
            ),
        ),
        goal="(accepts planned)",
    )


# Certificates ------------------------------------------------------------------------------------

LINEAGE: tuple[str, ...] = (
    "(declare-fun lineage (Name) Bool)",
    "(declare-const remote Domain)",
    "(declare-const is-send Bool)",
    "(declare-fun source (Endpoint Name) Bool)",
    "(declare-fun source+ (Endpoint Name) Bool)",
    "(define-fun pure ((x Endpoint)) Bool (forall ((n Name)) (=> (source x n) (lineage n))))",
    "(define-fun pure+ ((x Endpoint)) Bool (forall ((n Name)) (=> (source+ x n) (lineage n))))",
    # Sources only grow, and take in those of what arrives.
    "(assert (forall ((x Endpoint) (n Name)) (=> (source x n) (source+ x n))))",
)
"""One step of any plan, seen from a domain that holds no producer of a lineage.

What is ``pure`` derives from the lineage alone, as an observation under it must.
"""


@lemma
def _crossing_at_the_start() -> Lemma:
    return Lemma(
        name="crossing at the start",
        says="a domain without producers of a lineage starts with nothing of that lineage",
        given=(
            *LINEAGE,
            "(declare-fun held (Endpoint Element) Bool)",
            "(assert (forall ((x Endpoint) (i Element)) (=> (held x i) (source x (name x)))))",
            "(assert (forall ((x Endpoint)) (=> (lineage (name x)) (not (= (domain x) remote)))))",
        ),
        goal="(forall ((x Endpoint) (i Element))"
        " (not (and (held x i) (= (domain x) remote) (pure x))))",
    )


@lemma
def _crossing() -> Lemma:
    return Lemma(
        name="crossing",
        says="into such a domain every element of the lineage comes by a send of nothing but "
        "that lineage: each lineage that a domain lacks and is asked for costs a send, and the "
        "value's bytes",
        given=(
            *LINEAGE,
            "(declare-fun held (Endpoint Element) Bool)",
            "(declare-fun root (Endpoint Element) Endpoint)",
            "(declare-fun crossed (Element) Bool)",
            "(declare-fun arrives (Endpoint Element) Bool)",
            "(assert (forall ((x Endpoint) (i Element) (n Name))"
            " (=> (and (arrives x i) (source (root x i) n)) (source+ x n))))",
            "(assert (forall ((x Endpoint) (i Element)) (=> (and (held x i)"
            " (= (domain x) remote) (pure x)) (crossed i))))",
            "(define-fun crossed+ ((i Element)) Bool (or (crossed i) (and is-send (exists"
            " ((x Endpoint)) (and (arrives x i) (= (domain x) remote) (pure (root x i)))))))",
            "(define-fun held+ ((x Endpoint) (i Element)) Bool (or (held x i) (arrives x i)))",
        ),
        guards=(
            _guard(
                "what arrives was held by the root",
                rules.SENDER_HOLDS,
                rules.ROOT_HOLDS,
                rules.GATHER_WHOLE,
                rules.REDUCE_READS,
                formula="(forall ((x Endpoint) (i Element))"
                " (=> (arrives x i) (held (root x i) i)))",
            ),
            _guard(
                "what is no send stays inside its domain",
                rules.BROADCAST_INSIDE,
                rules.GATHER_INSIDE,
                rules.REDUCE_INSIDE,
                formula="(forall ((x Endpoint) (i Element)) (=> (arrives x i) (or is-send "
                + guards.inside(_term("domain", "x"), Term("(domain (root x i))")).text
                + ")))",
            ),
        ),
        goal="(forall ((x Endpoint) (i Element)) (=> (and (held+ x i) (= (domain x) remote)"
        " (pure+ x)) (crossed+ i)))",
    )


@lemma
def _crossing_of_a_result() -> Lemma:
    return Lemma(
        name="crossing of a result",
        says="where such a domain holds a result, it has crossed, or the whole value has",
        given=(
            *LINEAGE,
            "(declare-fun held (Endpoint Element) Bool)",
            "(declare-fun root (Endpoint) Endpoint)",
            "(declare-fun crossed (Element) Bool)",
            "(declare-fun value-source (Endpoint Name) Bool)",
            "(declare-fun r-has (Endpoint) Bool)",
            "(declare-const r-crossed Bool)",
            "(declare-fun arrives (Endpoint) Bool)",
            "(declare-fun projects (Endpoint) Bool)",
            "(assert (forall ((x Endpoint) (n Name))"
            " (=> (and (arrives x) (source (root x) n)) (source+ x n))))",
            "(assert (forall ((x Endpoint) (n Name))"
            " (=> (and (projects x) (value-source x n)) (source+ x n))))",
            "(assert (forall ((x Endpoint) (i Element)) (=> (and (held x i)"
            " (= (domain x) remote) (forall ((n Name)) (=> (value-source x n) (lineage n))))"
            " (crossed i))))",
            "(declare-const all-crossed Bool)",
            "(assert (= all-crossed (forall ((i Element)) (crossed i))))",
            "(assert (forall ((x Endpoint)) (=> (and (r-has x) (= (domain x) remote) (pure x))"
            " (or r-crossed all-crossed))))",
            "(define-fun r-has+ ((x Endpoint)) Bool (or (r-has x) (arrives x) (projects x)))",
            "(define-fun r-crossed+ () Bool (or r-crossed (and is-send (exists"
            " ((x Endpoint)) (and (arrives x) (= (domain x) remote) (pure (root x)))))))",
        ),
        guards=(
            _guard(
                "what arrives was held by the root",
                rules.SENDER_HOLDS,
                rules.ROOT_HOLDS,
                rules.GATHER_READS,
                formula="(forall ((x Endpoint)) (=> (arrives x) (r-has (root x))))",
            ),
            _guard(
                "what is no send stays inside its domain",
                rules.BROADCAST_INSIDE,
                rules.GATHER_INSIDE,
                formula="(forall ((x Endpoint)) (=> (arrives x) (or is-send "
                + guards.inside(_term("domain", "x"), Term("(domain (root x))")).text
                + ")))",
            ),
            _guard(
                "a projection reads the whole value",
                rules.PROJECT_WHOLE,
                formula="(forall ((x Endpoint) (i Element)) (=> (projects x) (held x i)))",
            ),
        ),
        goal="(forall ((x Endpoint)) (=> (and (r-has+ x) (= (domain x) remote) (pure+ x))"
        " (or r-crossed+ all-crossed)))",
    )


# Proving -----------------------------------------------------------------------------------------


class Proved(Struct, frozen=True, kw_only=True):
    """How a lemma stands: ``holds``, and for each guard whether dropping it breaks the lemma.

    ``consistent`` is the answer to its hypotheses alone, which must have a model.
    """

    name: str
    says: str
    holds: Answer
    consistent: Answer
    without: dict[str, Answer]
    implied: tuple[str, ...]
    rules: tuple[str, ...]

    @property
    def stands(self) -> bool:
        """The lemma has no counterexample, and has one as soon as a needed guard is dropped."""
        if (self.holds, self.consistent) != (Answer.UNSAT, Answer.SAT):
            return False
        return all(
            answer is (Answer.UNSAT if guard in self.implied else Answer.SAT)
            for guard, answer in self.without.items()
        )


def lemmas() -> list[Lemma]:
    """Every lemma, built from the guards as they are now."""
    return [build() for build in LEMMAS]


def prove_lemma(found: Lemma, *, rlimit: int = solver.RLIMIT) -> Proved:
    """Prove one lemma, and find which guards it cannot do without."""
    script = found.script()
    names = [g.name for g in found.guards]
    without = {
        name: solver.decide(script, [n for n in names if n != name], rlimit=rlimit).answer
        for name in names
    }
    return Proved(
        name=found.name,
        says=found.says,
        holds=solver.decide(script, rlimit=rlimit).answer,
        consistent=solver.decide(found.script(negated=False), rlimit=rlimit).answer,
        without=without,
        implied=found.implied,
        rules=tuple(sorted({rule.id for g in found.guards for rule in g.rules})),
    )


def prove_theorem(*, rlimit: int = solver.RLIMIT) -> Iterator[Proved]:
    """Prove every lemma, in order."""
    for found in lemmas():
        yield prove_lemma(found, rlimit=rlimit)


def questions(found: Sequence[Lemma]) -> dict[str, str]:
    """Each lemma's question as an SMT-LIB file, by file name."""
    return {
        f"lemma-{n:02}-{item.name.replace(' ', '-')}.smt2": solver.smtlib(item.script())
        for n, item in enumerate(found, 1)
    }
