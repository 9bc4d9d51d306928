"""The executable reference (§3.6): runs a plan on arrays and compares what consumers observe.

An independent judge: it shares the IR with the checker and nothing else. Every array travels
with its completeness, its sources and its issuers, and what a demanded consumer ends with is
compared with the observation that the contract's conservative reading gives (equation 4). An op
that cannot be carried out at all (nothing to read, a native collective over two communicators)
is a fault, which is not the same as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import reduce as fold
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.kernels import KERNELS, numpy_dtype, pack, result_dtype, unpack
from sembridge.layout import slice_bounds
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import VALUE, AllGather, Broadcast, Part, Plan, Project, Reduce, Send
from sembridge.surfaces import PARAMETERS

Array = NDArray[Any]

MAX_BYTES = 2**31
"""Most bytes that one execution may hold."""

OPERATORS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "product": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
}


class Outcome(StrEnum):
    """What running a plan showed."""

    EQUAL = "equal"
    DIFFERS = "differs"
    FAULT = "fault"


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that ``endpoint`` observes otherwise than the reference does."""

    endpoint: str
    surface: str
    what: str
    observed: str = ""
    expected: str = ""


class Execution(Struct, frozen=True, kw_only=True):
    """The outcome of one plan: its differences, or the op at which it could not go on."""

    outcome: Outcome
    differences: tuple[Difference, ...] = ()
    op: int | None = None
    reason: str = ""


class Fault(Exception):
    """An op that cannot be carried out."""


class Held(Struct, kw_only=True):
    """A flat array at one endpoint, which elements of it arrived, and where they came from."""

    data: Array
    arrived: NDArray[np.bool_] | None
    complete: bool
    sources: frozenset[str]
    issuers: frozenset[str]


def revealing_inputs(ob: Obligations, variant: int = 0) -> dict[str, Array]:
    """Flat arrays, one per producer, on which a wrong plan shows.

    Producers that the contract relates (one class, a replicate placement) hold equal arrays, all
    others differ at every element. Values are small signed integers, exact in every dtype and
    under every order of reduction; each row of a projected value has its largest entry twice,
    and larger entries still in padding columns. ``variant`` shifts all of it.
    """
    value = ob.contract.value
    dtype = numpy_dtype(value.dtype)
    unsigned = value.dtype.startswith("uint")
    group: dict[object, int] = {}
    arrays: dict[str, Array] = {}
    for p in ob.producers:
        key = "all" if ob.replicate else ob.class_of.get(p, p)
        k = group.setdefault(key, len(group)) + 3 * variant
        arrays[p] = _pattern(ob, k, variant, 8 if unsigned else 0).astype(dtype)
    return arrays


def _pattern(ob: Obligations, k: int, variant: int, lift: int) -> Array:
    i = np.arange(ob.elements)
    if ob.operator == "product":
        flat = np.where((i + k) % 3 == 0, -1, 1) * np.where(i % len(ob.producers) == k, 2, 1)
    else:
        flat = (i * 5 + k * 3) % 16 - 8 + lift
    shape, projected = ob.contract.value.shape, ob.projected
    if projected is None or not shape or ob.elements == 0:
        return flat
    rows = flat.reshape(-1, shape[-1])
    r = np.arange(len(rows))
    columns = shape[-1] if ob.contract.value.valid_last is None else ob.contract.value.valid_last
    peak: Any = 9 if ob.operator != "product" else 4 if k == 3 * variant else 1
    if projected.vocabulary is not None:
        # Two shards tie for each row's largest entry, and which ones changes with the row.
        k -= 3 * variant
        shards = -(-projected.vocabulary // shape[-1])
        columns = min(max(projected.vocabulary - k * shape[-1], 0), shape[-1])
        peak = np.where((r + variant - k) % shards < 2, 10, 9)
    first = (3 * r + (variant if ob.partial else 5 * k)) % max(columns, 1)
    rows[r, first] = peak
    rows[r, (first + 1 + r % max(1, columns - 1)) % max(columns, 1)] = peak
    rows[:, columns:] = np.max(peak) + 2
    return rows.reshape(-1)


class Machine:
    """Endpoint memories, and the ops that change them."""

    def __init__(self, ob: Obligations, inputs: dict[str, Array]) -> None:
        self.ob = ob
        self.memory: dict[tuple[str, str], Held] = {
            (p, VALUE): Held(
                data=inputs[p],
                arrived=None,
                complete=not ob.partial,
                sources=frozenset((p,)),
                issuers=frozenset((p,)),
            )
            for p in ob.producers
        }
        if ob.projected is not None and ob.projected.choices:
            nobody = frozenset[str]()
            known = Held(
                data=pack(ob.projected.choices),
                arrived=None,
                complete=True,
                sources=nobody,
                issuers=nobody,
            )
            self.memory.update({(x, PARAMETERS): known for x in ob.informed})

    def run(self, op: object) -> None:
        """Carry out one op, or raise :class:`Fault`."""
        match op:
            case Send():
                self._send(op)
            case Broadcast():
                self._one_communicator(op.src, *op.dsts)
                held = self._read(op.src, op.surface)
                for dst in op.dsts:
                    self._write(dst, op.surface, held, held.arrived)
            case Project():
                self._project(op)
            case Reduce():
                self._reduce(op)
            case AllGather():
                self._gather(op)
            case _:
                raise TypeError(op)

    def _read(self, endpoint: str, surface: str) -> Held:
        held = self.memory.get((endpoint, surface))
        if held is None:
            raise Fault(f"{endpoint} has no {surface} to read")
        return held

    def _whole(self, endpoint: str, surface: str) -> Held:
        held = self._read(endpoint, surface)
        if held.arrived is not None:
            raise Fault(f"elements of {surface} never arrived at {endpoint}")
        return held

    def _one_communicator(self, *endpoints: str) -> None:
        domains = {self._domain(x) for x in endpoints}
        if len(domains) != 1:
            raise Fault(f"no communicator spans {sorted(domains)}")

    def _domain(self, endpoint: str) -> str:
        domain = self.ob.domain_of.get(endpoint)
        if domain is None:
            raise Fault(f"no endpoint {endpoint}")
        return domain

    def _write(self, dst: str, surface: str, sent: Held, arrived: NDArray[np.bool_] | None) -> None:
        there = self.memory.get((dst, surface))
        if arrived is None or there is None:
            self.memory[dst, surface] = Held(
                data=sent.data
                if arrived is None
                else np.where(arrived, sent.data, 0).astype(sent.data.dtype),
                arrived=None if arrived is None or arrived.all() else arrived,
                complete=sent.complete or (arrived is not None and not arrived.any()),
                sources=sent.sources,
                issuers=sent.issuers,
            )
            return
        before = np.ones_like(arrived) if there.arrived is None else there.arrived
        both = before | arrived
        self.memory[dst, surface] = Held(
            data=np.where(arrived, sent.data, there.data),
            arrived=None if both.all() else both,
            complete=there.complete and (sent.complete or not arrived.any()),
            sources=there.sources | sent.sources,
            issuers=there.issuers | sent.issuers,
        )

    def _slice(self, part: Part, size: int) -> NDArray[np.bool_]:
        if part.index >= part.of:
            raise Fault(f"no slice {part.index} of {part.of}")
        start, stop = slice_bounds(size, part.index, part.of)
        chosen = np.zeros(size, dtype=np.bool_)
        chosen[start:stop] = True
        return chosen

    def _send(self, op: Send) -> None:
        if self._domain(op.src) == self._domain(op.dst):
            raise Fault(f"no carrier inside domain {self._domain(op.src)}")
        if op.part is None:
            self._write(op.dst, op.surface, self._whole(op.src, op.surface), None)
            return
        if op.surface != VALUE:
            raise Fault(f"{op.surface} has no slices")
        held = self._read(op.src, op.surface)
        chosen = self._slice(op.part, held.data.size)
        if held.arrived is not None and not held.arrived[chosen].all():
            raise Fault(f"elements of {op.surface} never arrived at {op.src}")
        self._write(op.dst, op.surface, held, chosen)

    def _project(self, op: Project) -> None:
        projected, kernel = self.ob.projected, KERNELS.get(op.projection)
        if projected is None or kernel is None or op.projection != projected.name:
            raise Fault(f"no kernel for {op.projection!r} here")
        held = self._whole(op.at, VALUE)
        if kernel.local is not None and projected.combine is not None:
            offset = self._shard(held) * self.ob.contract.value.shape[-1]
            data = kernel.local(_rows(self.ob, held.data), projected, offset)
        else:
            choices = unpack(self._whole(op.at, PARAMETERS).data) if projected.choices else ()
            rows = _rows(self.ob, held.data)[:, : self.ob.contract.value.valid_last]
            data = kernel.whole(rows, projected, choices)
        result = Held(
            data=data,
            arrived=None,
            complete=held.complete and projected.combine is None,
            sources=held.sources,
            issuers=held.issuers,
        )
        self.memory.setdefault((op.at, projected.output), result)

    def _shard(self, held: Held) -> int:
        """Which shard of the whole a value is: its producer's place in stable order."""
        if len(held.sources) != 1:
            raise Fault(f"no shard derives from {sorted(held.sources)}")
        return self.ob.producers.index(min(held.sources))

    def _reduce(self, op: Reduce) -> None:
        if not op.targets or not op.sources:
            raise Fault("a reduction of nothing, or to nobody")
        self._one_communicator(*op.sources, *op.targets)
        held = [self._whole(x, op.surface) for x in op.sources]
        arrays = [h.data for h in held]
        if op.surface == VALUE:
            operator = OPERATORS.get(op.operator)
            if operator is None:
                raise Fault(f"no native {op.operator!r}")
            data = _reduced(operator, arrays)
        else:
            data = self._combined(op, arrays)
        sources = frozenset[str]().union(*[h.sources for h in held])
        for target in op.targets:
            self.memory[target, op.surface] = Held(
                data=data,
                arrived=None,
                complete=True,
                sources=sources,
                issuers=frozenset((target,)),
            )

    def _combined(self, op: Reduce, arrays: Sequence[Array]) -> Array:
        projected = self.ob.projected
        if projected is None or (op.operator, op.surface) != (projected.combine, projected.output):
            raise Fault(f"no combine {op.operator!r} of {op.surface}")
        combine = KERNELS[projected.name].combine
        if combine is None or any(a.dtype == result_dtype(projected) for a in arrays):
            raise Fault(f"{op.surface} is combined already")
        return combine(arrays, projected)

    def _gather(self, op: AllGather) -> None:
        if not op.members:
            raise Fault("an all_gather of nobody")
        self._one_communicator(*op.members)
        held = [self._read(x, op.surface) for x in op.members]
        data = np.zeros_like(held[0].data)
        arrived = np.zeros(data.size, dtype=np.bool_)
        for h in held:
            mine = np.ones(data.size, dtype=np.bool_) if h.arrived is None else h.arrived
            data = np.where(mine, h.data, data)
            arrived |= mine
        for x in op.members:
            self.memory[x, op.surface] = Held(
                data=data,
                arrived=None if arrived.all() else arrived,
                complete=all(h.complete for h in held if h.arrived is None or h.arrived.any()),
                sources=frozenset[str]().union(*[h.sources for h in held]),
                issuers=frozenset[str]().union(*[h.issuers for h in held]),
            )


def _reduced(operator: Callable[[Array, Array], Array], arrays: list[Array]) -> Array:
    """Exact on the revealing inputs, whatever the order: accumulated wide, rounded once."""
    dtype = arrays[0].dtype
    wide = np.int64 if dtype.kind in "iu" else np.float64
    total = fold(operator, (a.astype(wide) for a in arrays))
    return total.astype(dtype)


def _rows(ob: Obligations, flat: Array) -> Array:
    return flat.reshape(-1, ob.contract.value.shape[-1])


def expected_result(ob: Obligations, inputs: dict[str, Array], consumer: str) -> Array:
    """What the projection gives of the complete value, wherever and however it is computed.

    Shards are put side by side first, and padding is cut off.
    """
    value, projected = ob.contract.value, ob.projected
    assert projected is not None
    if projected.combine is None:
        rows = _rows(ob, expected_value(ob, inputs, consumer))[:, : value.valid_last]
    else:
        whole = np.concatenate([_rows(ob, inputs[p]) for p in ob.producers], axis=1)
        rows = whole[:, : projected.vocabulary]
    choices = unpack(pack(projected.choices)) if projected.choices else ()
    return KERNELS[projected.name].whole(rows, projected, choices)


def expected_value(ob: Obligations, inputs: dict[str, Array], consumer: str) -> Array:
    """The flat complete value that the conservative reading gives ``consumer``."""
    if ob.reduced is not None and ob.operator is not None and ob.completes == VALUE:
        sources = [inputs[p] for p in ob.producers if p in ob.reduced]
        return _reduced(OPERATORS[ob.operator], sources)
    if ob.owners is not None:
        return inputs[min(ob.owners)]
    return inputs[ob.mapped[consumer]]


def observe(
    ob: Obligations, machine: Machine, inputs: dict[str, Array], consumer: str
) -> list[Difference]:
    """Where a consumer's ⟨surface, value, complete, provenance, authority⟩ is not as expected."""
    found: list[Difference] = []
    for surface in ob.observed:
        held = machine.memory.get((consumer, surface))

        def differs(
            what: str, observed: object = "", expected: object = "", surface: str = surface
        ) -> None:
            found.append(
                Difference(
                    endpoint=consumer,
                    surface=surface,
                    what=what,
                    observed=str(observed),
                    expected=str(expected),
                )
            )

        if held is None:
            differs("missing")
            continue
        if held.arrived is not None:
            differs("slices missing")
            continue
        of = expected_value if surface == VALUE else expected_result
        expected = of(ob, inputs, consumer)
        if held.data.dtype != expected.dtype:
            differs("type", held.data.dtype, expected.dtype)
        elif held.data.tobytes() != expected.tobytes():
            same = held.data.view(np.uint8) == expected.view(np.uint8)
            at = int(np.argmin(same)) // expected.dtype.itemsize
            differs("value", f"[{at}] = {held.data[at]}", f"[{at}] = {expected[at]}")
        if not held.complete:
            differs("completeness")
        for what, admitted in _admitted(ob, consumer, held):
            if not admitted:
                differs(what, sorted(held.sources if what == "provenance" else held.issuers))
    return found


def _admitted(ob: Obligations, consumer: str, held: Held) -> list[tuple[str, bool]]:
    """Which of provenance and authority the contract asks for, and whether they hold."""
    asked: list[tuple[str, bool]] = []
    if ob.owners is not None:
        asked.append(("authority", held.issuers <= ob.owners))
        if ob.reduced is None:
            asked.append(("provenance", held.sources <= ob.owners))
    if ob.reduced is not None:
        asked.append(("provenance", held.sources == ob.reduced))
    elif ob.owners is None:
        reassembly = ob.replicate and len(held.sources) > 1
        asked.append(("provenance", reassembly or held.sources <= ob.members(ob.mapped[consumer])))
    return asked


def execute_valid(ob: Obligations, plan: Plan, *, variants: int = 2) -> Execution:
    """:func:`execute` under obligations that passed validation."""
    endpoints = {x for key in (ob.producers, ob.demanded) for x in key}
    value, projected = ob.contract.value, ob.projected
    each = sum(ob.sizes.values())
    if projected is not None:
        each += projected.partial_bytes(value.shape, value.dtype)
    if each * len(endpoints) > MAX_BYTES:
        raise BadInput(
            f"executing needs {each} bytes at each of {len(endpoints)} endpoints, "
            f"over {MAX_BYTES} in all",
            path="$.value.shape",
        )
    for variant in range(variants):
        inputs = revealing_inputs(ob, variant)
        machine = Machine(ob, inputs)
        for index, op in enumerate(plan.ops):
            try:
                machine.run(op)
            except Fault as fault:
                return Execution(outcome=Outcome.FAULT, op=index, reason=str(fault))
        found = [d for c in ob.demanded for d in observe(ob, machine, inputs, c)]
        if found:
            return Execution(outcome=Outcome.DIFFERS, differences=tuple(found))
    return Execution(outcome=Outcome.EQUAL)


def execute(contract: Contract, plan: Plan, *, variants: int = 2) -> Execution:
    """Run ``plan`` on value-revealing inputs and compare each demanded consumer's observation.

    Raises:
        BadInput: the arrays would not fit in ``MAX_BYTES``, or a reference is broken.
        ContractRejected: the contract fails static validation.
    """
    return execute_valid(resolve_valid(contract), plan, variants=variants)


def result_of(machine: Machine, endpoint: str, surface: str) -> Array | None:
    """The flat array at an endpoint after a run, None where nothing arrived."""
    held = machine.memory.get((endpoint, surface))
    return None if held is None else held.data
