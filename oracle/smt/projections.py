"""Exact projections: argmax over vocabulary shards, combined in any order, is argmax of the whole.

A shard hands over its best candidate, ⟨value, global index⟩, or nothing where all its columns
are padding. ``combine`` keeps the better of two: a NaN beats every number, among NaNs and among
equal numbers (−0 and +0 are equal) the lower index wins. Each lemma is bit-precise over one
floating-point format. Together they say that ``combine`` is the step of the sequential scan that
defines argmax, and that it is associative and commutative with the empty candidate as identity.

Induction over the second operand's length then gives, for shards ``xs`` and ``ys`` of any size,
``argmax(xs ++ ys) = combine(argmax(xs), argmax(ys))``: for an empty ``ys`` by identity, and for
``ys ++ [y]`` because the scan's step is ``combine`` and ``combine`` is associative. With
commutativity, any tree and any order of combination gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from oracle.smt import solver
from oracle.smt.model import conj
from oracle.smt.solver import Answer, Script

FORMATS: dict[str, tuple[int, int]] = {
    "float8_e5m2": (5, 3),
    "float16": (5, 11),
    "bfloat16": (8, 8),
    "float32": (8, 24),
}
"""Exponent and significand bits of the IEEE formats among the kit's dtypes.

``float8_e4m3fn`` is none of them (it has no infinity); its numbers are ordered as float16's are,
into which they embed. ``float64`` is left out for time alone.
"""

INDEX_BITS = 8

COMBINE: tuple[str, ...] = (
    "(define-fun beats ((v F) (i I) (w F) (j I)) Bool (ite (fp.isNaN v)"
    " (or (not (fp.isNaN w)) (bvult i j))"
    " (and (not (fp.isNaN w)) (or (fp.gt v w) (and (fp.eq v w) (bvult i j))))))",
)
"""When candidate ⟨v, i⟩ is better than ⟨w, j⟩."""

WRONG: dict[str, str] = {
    "highest index on ties": "(define-fun beats ((v F) (i I) (w F) (j I)) Bool (ite (fp.isNaN v)"
    " (or (not (fp.isNaN w)) (bvult i j))"
    " (and (not (fp.isNaN w)) (or (fp.gt v w) (and (fp.eq v w) (bvult j i))))))",
    "no rule for NaN": "(define-fun beats ((v F) (i I) (w F) (j I)) Bool"
    " (or (fp.gt v w) (and (fp.eq v w) (bvult i j))))",
    "a shard's own index": "(define-fun beats ((v F) (i I) (w F) (j I)) Bool (ite (fp.isNaN v)"
    " (or (not (fp.isNaN w)) (bvult (bvand i #x0f) (bvand j #x0f)))"
    " (and (not (fp.isNaN w)) (or (fp.gt v w)"
    " (and (fp.eq v w) (bvult (bvand i #x0f) (bvand j #x0f)))))))",
}
"""Combinations that look alike and are wrong; each breaks a lemma."""

CANDIDATES: tuple[str, ...] = (
    "(declare-datatypes ((C 0)) (((none) (best (value F) (index I)))))",
    "(define-fun combine ((a C) (b C)) C (ite ((_ is none) a) b (ite ((_ is none) b) a"
    " (ite (beats (value a) (index a) (value b) (index b)) a b))))",
    # The scan that defines argmax: b comes after a, and replaces it only where it is better.
    "(define-fun scan ((a C) (b C)) C (ite ((_ is none) b) a (ite ((_ is none) a) b"
    " (ite (fp.isNaN (value a)) a (ite (fp.isNaN (value b)) b"
    " (ite (fp.gt (value b) (value a)) b a))))))",
    "(define-fun apart ((a C) (b C)) Bool (or ((_ is none) a) ((_ is none) b)"
    " (not (= (index a) (index b)))))",
    "(declare-const a C)",
    "(declare-const b C)",
    "(declare-const c C)",
)

LEMMAS: dict[str, tuple[tuple[str, ...], str]] = {
    "the scan's step is combine": (
        ("(=> (and ((_ is best) a) ((_ is best) b)) (bvult (index a) (index b)))",),
        "(= (scan a b) (combine a b))",
    ),
    "commutative": (("(apart a b)",), "(= (combine a b) (combine b a))"),
    "associative": (
        ("(apart a b)", "(apart b c)", "(apart a c)"),
        "(= (combine (combine a b) c) (combine a (combine b c)))",
    ),
    "identity": ((), "(and (= (combine none a) a) (= (combine a none) a))"),
    "selective": ((), "(or (= (combine a b) a) (= (combine a b) b))"),
}
"""Lemmas by name: what is given of candidates a, b and c, and what follows."""


class Exact(Struct, frozen=True, kw_only=True):
    """A lemma over one format, and the answer to its negation."""

    lemma: str
    dtype: str
    answer: Answer


def script(lemma: str, dtype: str, beats: str = COMBINE[0]) -> Script:
    """The question whether ``lemma`` has a counterexample over ``dtype``."""
    exponent, significand = FORMATS[dtype]
    given, goal = LEMMAS[lemma]
    return Script(
        logic="ALL",
        body=(
            f"(define-sort F () (_ FloatingPoint {exponent} {significand}))",
            f"(define-sort I () (_ BitVec {INDEX_BITS}))",
            beats,
            *CANDIDATES,
            f"(assert {conj(given)})",
            f"(assert (not {goal}))",
        ),
    )


def prove_exact(*, rlimit: int = solver.RLIMIT) -> Iterator[Exact]:
    """Every lemma over every format."""
    for lemma in LEMMAS:
        for dtype in FORMATS:
            outcome = solver.decide(script(lemma, dtype), rlimit=rlimit)
            yield Exact(lemma=lemma, dtype=dtype, answer=outcome.answer)


def broken_by(beats: str, dtype: str = "float8_e5m2") -> Mapping[str, Answer]:
    """What each lemma's negation answers under another combination."""
    return {name: solver.decide(script(name, dtype, beats)).answer for name in LEMMAS}
