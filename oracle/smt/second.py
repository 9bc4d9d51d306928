"""A second opinion on a question: cvc5 reads the dumped SMT-LIB, and checks its own proof."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from oracle.smt.solver import Answer
from sembridge.errors import BadInput

RESOURCES = 2_000_000
"""cvc5's budget for one question, in its own resource units."""


def cvc5_module() -> Any:
    """The optional cvc5 package.

    Raises:
        BadInput: it is not installed.
    """
    try:
        return import_module("cvc5")
    except ImportError as error:
        raise BadInput("cvc5 is not installed (pip install 'sembridge[cvc5]')") from error


def confirm(question: str, *, proof: bool = True) -> Answer:
    """cvc5's answer to an SMT-LIB file; where ``proof``, an ``unsat`` whose proof it checked.

    Raises:
        BadInput: cvc5 is not installed, or does not read the file.
    """
    cvc5 = cvc5_module()
    tm = cvc5.TermManager()
    solver = cvc5.Solver(tm)
    solver.setOption("rlimit", str(RESOURCES))
    solver.setOption("enum-inst", "true")
    if proof:
        solver.setOption("produce-proofs", "true")
        solver.setOption("check-proofs", "true")
    else:
        solver.setOption("produce-models", "true")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, question, "question.smt2")
    symbols, answer = parser.getSymbolManager(), ""
    try:
        while True:
            command = parser.nextCommand()
            if command.isNull():
                break
            answer = command.invoke(solver, symbols).strip() or answer
    except RuntimeError as error:
        raise BadInput(f"cvc5 does not read the question: {error}") from error
    if answer.startswith("(error"):
        raise BadInput(f"cvc5: {answer}")
    return Answer(answer) if answer in ("sat", "unsat") else Answer.UNKNOWN
