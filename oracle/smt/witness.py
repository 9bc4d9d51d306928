"""Counterexamples: a small contract, a small plan, small integers, and what a run of it shows.

A witness is shrunk first (ops, endpoints, elements, in this order, until none can go) and then
made concrete; it replays through the executable reference, so neither the solver nor the checker
has to be believed. Not every illegal plan delivers a wrong value: one that delivers twice, or
from a replica that owns nothing, breaks a rule and no tensor. Its witness says which rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from oracle.shrink import shrink
from oracle.smt import solver
from oracle.smt.model import Condition, TooLarge, encode
from oracle.smt.prove import prove, prove_valid
from oracle.smt.solver import Answer
from sembridge import io
from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.kernels import numpy_dtype
from sembridge.obligations import Obligations, resolve, resolve_valid, validate
from sembridge.plan import VALUE, Plan
from sembridge.reference import Fault, Machine, expected_result, expected_value, observe
from sembridge.verdict import Verdict

LARGEST = 7
"""Largest integer in a witness's tensors: exact in every dtype."""

MAX_ELEMENTS = 4096
ATTEMPTS = 64

Tensors = Mapping[str, tuple[int, ...]]


class Shows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What running a witness shows.

    ``difference``: ``endpoint`` ends with other elements of ``surface`` than the reference gives
    it. ``missing``: it ends without them. ``fault``: ``op`` cannot be carried out. ``condition``:
    the plan runs, and breaks ``rule`` all the same. ``rejected``: the contract fails validation.
    """

    kind: Literal["difference", "missing", "fault", "condition", "rejected"]
    rule: str
    op: int | None = None
    endpoint: str | None = None
    surface: str | None = None
    observed: tuple[int, ...] | None = None
    expected: tuple[int, ...] | None = None
    says: str = ""


class Witness(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag="sembridge.witness/1",
    forbid_unknown_fields=True,
):
    """A replayable counterexample; ``tensors`` are the producers' flattened values."""

    contract: Contract
    plan: Plan
    tensors: dict[str, tuple[int, ...]]
    shows: Shows


class Replay(Struct, frozen=True, kw_only=True):
    """What a run of a witness showed now, and whether that is what it claims."""

    confirmed: bool
    shows: Shows


def decode_witness(data: bytes) -> Witness:
    """A witness from JSON, its references and the sizes of its tensors checked.

    Raises:
        BadInput: with the JSON path of the first field that is wrong.
    """
    witness = io.decode(data, Witness)
    ob = resolve(witness.contract)
    for name, tensor in witness.tensors.items():
        path = f"$.tensors[{name!r}]"
        if name not in ob.producer_set:
            raise BadInput(f"no such producer {name!r}", path=path)
        if len(tensor) != ob.elements:
            raise BadInput(f"{len(tensor)} elements of {ob.elements}", path=path)
        if not all(-LARGEST <= v <= LARGEST for v in tensor):
            raise BadInput(f"an element beyond ±{LARGEST}", path=path)
    return witness


def replay(witness: Witness) -> Replay:
    """Run a witness through the executable reference; does it show what it claims?"""
    claimed = witness.shows
    ob = resolve(witness.contract)
    if claimed.kind == "rejected":
        rules = [v.rule for v in validate(ob)]
        return Replay(confirmed=claimed.rule in rules, shows=claimed)
    if validate(ob):
        return Replay(confirmed=False, shows=_rejected(witness.contract))
    shown = run(ob, witness.plan, witness.tensors, claimed)
    return Replay(confirmed=shown == claimed, shows=shown)


def run(ob: Obligations, plan: Plan, tensors: Tensors, sought: Shows) -> Shows:
    """What running ``plan`` on ``tensors`` shows of what is ``sought``.

    A fault wins, for then nothing is observed. Otherwise the endpoint and surface in question
    are looked at, and where they are as expected (or none is named) the broken rule remains.
    """
    dtype = numpy_dtype(ob.contract.value.dtype)
    zeros = (0,) * ob.elements
    inputs = {p: np.array(tensors.get(p, zeros), dtype=dtype) for p in ob.producers}
    machine = Machine(ob, inputs)
    for i, op in enumerate(plan.ops):
        try:
            machine.run(op)
        except Fault as fault:
            return Shows(kind="fault", rule=sought.rule, op=i, says=str(fault))
    broken = msgspec.structs.replace(
        sought, kind="condition", surface=None, observed=None, expected=None
    )
    if sought.endpoint not in ob.demanded or sought.op is not None:
        return broken
    for found in observe(ob, machine, inputs, sought.endpoint):
        if sought.surface is not None and found.surface != sought.surface:
            continue
        if found.what in ("missing", "slices missing"):
            return msgspec.structs.replace(broken, kind="missing", surface=found.surface)
        if found.what == "value" and sought.surface is not None:
            held = machine.memory[sought.endpoint, found.surface].data
            expected = _expected(ob, inputs, sought.endpoint, found.surface)
            return msgspec.structs.replace(
                broken,
                kind="difference",
                surface=found.surface,
                observed=tuple([int(v) for v in held]),
                expected=tuple([int(v) for v in expected]),
            )
    return broken


def _expected(ob: Obligations, inputs: Any, consumer: str, surface: str) -> Any:
    """What the reference gives ``consumer``, projected by the reference's own kernel."""
    of = expected_value if surface == VALUE or ob.projected is None else expected_result
    return of(ob, inputs, consumer)


def _rejected(contract: Contract) -> Shows:
    first = validate(resolve(contract))[0]
    return Shows(kind="rejected", rule=first.rule, says=first.message)


# Finding -----------------------------------------------------------------------------------------


def find_witness(
    contract: Contract, plan: Plan, *, rlimit: int = solver.RLIMIT, shrink_it: bool = True
) -> Witness | None:
    """A counterexample to the legality of ``plan``; None where it is not illegal.

    Raises:
        BadInput: the contract refers to what is not there.
    """
    proof = prove(contract, plan, rlimit=rlimit)
    if proof.verdict is not Verdict.ILLEGAL:
        return None
    if not proof.broken:
        return Witness(contract=contract, plan=plan, tensors={}, shows=_rejected(contract))
    goal = _first(proof.broken)
    if shrink_it:
        contract, plan, goal = _shrunk(contract, plan, goal, rlimit)
    return _concrete(resolve_valid(contract), plan, goal, rlimit)


def _shrunk(
    contract: Contract, plan: Plan, goal: Condition, rlimit: int
) -> tuple[Contract, Plan, Condition]:
    """The smallest pair that breaks the same rule in the same way."""
    found = goal

    def breaks(contract: Contract, plan: Plan) -> bool:
        nonlocal found
        for c in prove_valid(resolve(contract), plan, rlimit=rlimit).broken:
            same = (c.rule, c.value_of) == (goal.rule, goal.value_of)
            if same and (c.op is None) == (goal.op is None):
                found = c
                return True
        return False

    columns = 1 if goal.value_of in (None, VALUE) else 2
    smaller = shrink(contract, plan, breaks, columns=columns)
    return (*smaller, found)


def _first(broken: tuple[Condition, ...]) -> Condition:
    """What a witness is about: a wrong value before a broken rule, the first of either."""
    return next((c for c in broken if c.value_of is not None), broken[0])


def _concrete(ob: Obligations, plan: Plan, goal: Condition, rlimit: int) -> Witness:
    sought = Shows(
        kind="condition",
        rule=goal.rule,
        op=goal.op,
        endpoint=goal.endpoint,
        surface=goal.value_of,
        says=goal.says,
    )
    shows, chosen = msgspec.structs.replace(sought, surface=None), dict[str, tuple[int, ...]]()
    if ob.elements <= MAX_ELEMENTS:
        for tensors in _tensors(ob, plan, goal, rlimit):
            shows, chosen = run(ob, plan, tensors, sought), dict(tensors)
            if goal.value_of is None or shows.kind != "condition":
                break
    return Witness(contract=ob.contract, plan=plan, tensors=chosen, shows=shows)


def _tensors(ob: Obligations, plan: Plan, goal: Condition, rlimit: int) -> Iterator[Tensors]:
    """Tensors that agree with the facts: the solver's own, then patterns, then random ones.

    A projection is any function to the solver, and a particular one here, so the solver's
    tensors need not tell it apart.
    """
    solved = _solved(ob, plan, goal, rlimit)
    if solved is not None:
        yield solved
    group: dict[frozenset[str], int] = {}
    for p in ob.producers:
        group.setdefault(ob.members(p), len(group))
    columns = max(1, (ob.contract.value.shape or (1,))[-1])
    random = Random(0)
    for attempt in range(ATTEMPTS):
        rows: dict[frozenset[str], tuple[int, ...]] = {}
        for members, k in group.items():
            if attempt == 0:
                rows[members] = tuple([(i + k) % columns == 0 for i in range(ob.elements)])
            else:
                rows[members] = tuple([random.randint(0, LARGEST) for _ in range(ob.elements)])
        yield {p: tuple([int(v) for v in rows[ob.members(p)]]) for p in ob.producers}


def _solved(ob: Obligations, plan: Plan, goal: Condition, rlimit: int) -> Tensors | None:
    try:
        model = encode(ob, plan)
    except TooLarge:
        return None
    if goal not in model.conditions:
        return None
    powers = ob.operator == "product"  # the model's numbers are exponents of two then
    largest = 2 if powers else LARGEST
    bounds = [f"(<= 0 {v} {largest})" for cells in model.tensors.values() for v in cells]
    claims = [f"(not ok_{model.conditions.index(goal)})", *bounds]
    outcome = solver.decide(model.script.with_claims(*claims), rlimit=rlimit, repeatable=True)
    if outcome.answer is not Answer.SAT:
        return None
    return {
        p: tuple(
            [
                2 ** int(outcome.constants.get(cell, 0))
                if powers
                else int(outcome.constants.get(cell, 0))
                for cell, (start, stop) in zip(cells, model.spans, strict=True)
                for _ in range(start, stop)
            ]
        )
        for p, cells in model.tensors.items()
    }
