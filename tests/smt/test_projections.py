"""The combine over vocabulary shards: proved bit for bit, and compared with NumPy's argmax."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.smt import solver
from oracle.smt.projections import FORMATS, LEMMAS, WRONG, broken_by, prove_exact, script
from oracle.smt.second import confirm
from oracle.smt.solver import Answer
from sembridge.kernels import argmax


def test_every_lemma_holds_over_every_format() -> None:
    found = list(prove_exact())
    assert {(e.lemma, e.dtype) for e in found} == {(n, d) for n in LEMMAS for d in FORMATS}
    assert {e.answer for e in found} == {Answer.UNSAT}


@pytest.mark.parametrize("name", WRONG)
def test_combinations_that_look_alike_break_a_lemma(name: str) -> None:
    assert Answer.SAT in broken_by(WRONG[name]).values()


@pytest.mark.parametrize("lemma", ["commutative", "identity", "selective"])
def test_cvc5_confirms_what_it_can(lemma: str) -> None:
    pytest.importorskip("cvc5")
    assert confirm(solver.smtlib(script(lemma, "float32"))) is Answer.UNSAT


Candidate = tuple[float, int]


def combine(a: Candidate | None, b: Candidate | None) -> Candidate | None:
    """The combine of the lemmas, in Python."""
    if a is None or b is None:
        return a or b
    (v, i), (w, j) = a, b
    if v != v:
        return a if w == w or i < j else b
    return a if w == w and (v > w or (v == w and i < j)) else b


values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, float("inf"), float("-inf"), float("nan")])


@given(st.lists(st.lists(values, max_size=4), min_size=1, max_size=5), st.randoms())
def test_shards_in_any_order_give_numpys_argmax(shards: list[list[float]], random: object) -> None:
    whole = [v for shard in shards for v in shard]
    if not whole:
        return
    best: list[Candidate | None] = []
    start = 0
    for shard in shards:
        local = int(np.argmax(shard)) if shard else None
        best.append(None if local is None else (shard[local], start + local))
        start += len(shard)
    random.shuffle(best)  # type: ignore[attr-defined]
    found = reduce(combine, best)
    assert found is not None
    assert found[1] == int(argmax(np.array([whole], dtype=np.float32))[0])
