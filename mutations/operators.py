"""The mutation operators: one small entry each, on plans and on contracts.

A plan operator yields broken (or only different) plans for one contract; a contract operator
yields changed contracts, under which the *old* plan is judged. ``expects`` names the rules that
a mutant should trip; an operator that expects none makes mutants that stay legal. ``source``
is the paper's section or the public bug whose kind it is; ``example`` is a mutant's id, and the
tests hold that it ends as the entry says. To add an operator, add one decorated function.

What crosses the wire has mutants of its own: :mod:`mutations.frames`.
"""

# ruff: noqa: D103  (an operator's entry says what it does)

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from oracle.byte_only import plan_bytes
from sembridge.contract import Consumer, Contract, Domain, Fact, Reduction
from sembridge.layout import Partial, Replicate, Shard
from sembridge.obligations import Obligations
from sembridge.plan import (
    VALUE,
    AllGather,
    AnyOp,
    Broadcast,
    Part,
    Plan,
    Project,
    Reduce,
    Send,
    Tag,
    endpoints_of,
)
from sembridge.surfaces import (
    ChosenTokens,
    Complete,
    Logprobs,
    ShardedTokens,
    Tokens,
    TopLogprobs,
)

Make = Callable[[Obligations, Plan], Iterator[Any]]

STILLBORN = "stillborn"
"""What an operator expects whose mutants are no well-formed files."""


class Operator(Struct, frozen=True, kw_only=True):
    """``make`` yields plans or contracts, in a stable order."""

    name: str
    on: Literal["plan", "contract"]
    says: str
    expects: tuple[str, ...]
    source: str
    example: str
    make: Make


OPERATORS: dict[str, Operator] = {}


def _operator(
    on: Literal["plan", "contract"], says: str, expects: str, source: str, example: str
) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        name = make.__name__.replace("_", "-")
        OPERATORS[name] = Operator(
            name=name,
            on=on,
            says=says,
            expects=tuple(expects.split()),
            source=source,
            example=f"{example.replace('@', f':{name}:')}",
            make=make,
        )
        return make

    return register


def _on_plan(says: str, *, expects: str, source: str, example: str) -> Callable[[Make], Make]:
    return _operator("plan", says, expects, source, example)


def _on_contract(says: str, *, expects: str, source: str, example: str) -> Callable[[Make], Make]:
    return _operator("contract", says, expects, source, example)


# What the operators are made of -----------------------------------------------------------------

replace: Callable[..., Any] = msgspec.structs.replace


def _each(plan: Plan, *kinds: type) -> Iterator[tuple[int, Any]]:
    return ((i, op) for i, op in enumerate(plan.ops) if isinstance(op, kinds))


def _with(plan: Plan, at: int, *ops: AnyOp) -> Plan:
    """``plan`` with other ops in the place of op ``at``."""
    return replace(plan, ops=plan.ops[:at] + ops + plan.ops[at + 1 :])


def _change(plan: Plan, at: int, **fields: Any) -> Plan:
    return _with(plan, at, replace(plan.ops[at], **fields))


def _moved(plan: Plan, at: int, to: int) -> Plan:
    ops = list(plan.ops)
    ops.insert(to, ops.pop(at))
    return replace(plan, ops=tuple(ops))


def _reading(plan: Plan, names: dict[str, str]) -> Plan:
    """``plan`` with other endpoints to read, and the parameters sent to these."""

    def renamed(op: AnyOp) -> AnyOp:
        match op:
            case Send(surface="parameters"):
                return replace(op, dst=names.get(op.dst, op.dst))
            case Broadcast(surface="parameters"):
                there = tuple(names.get(x, x) for x in (op.src, *op.dsts))
                return replace(op, src=there[0], dsts=there[1:])
            case Send() | Broadcast():
                return replace(op, src=names.get(op.src, op.src))
            case Project():
                return replace(op, at=names.get(op.at, op.at))
            case _:
                return op

    return replace(plan, ops=tuple(renamed(op) for op in plan.ops))


def _sources(ob: Obligations, plan: Plan) -> list[str]:
    """Producers that the plan sends or broadcasts from, in order of use."""
    used = dict.fromkeys(op.src for _, op in _each(plan, Send, Broadcast))
    return [p for p in used if p in ob.producer_set]


def _home(ob: Obligations, endpoint: str) -> str:
    """An endpoint's domain; a mutated plan may name strangers."""
    return ob.domain_of.get(endpoint, "")


def _idle(ob: Obligations, plan: Plan) -> list[str]:
    """Consumers that no op of the plan names."""
    named = {x for op in plan.ops for x in endpoints_of(op)}
    return [c for c in ob.consumers if c not in named]


def _domains(ob: Obligations) -> list[str]:
    return list(dict.fromkeys(_home(ob, c) for c in ob.consumers))


def _facts(contract: Contract, **facts: Any) -> Contract:
    return replace(contract, facts=replace(contract.facts, **facts))


def _slices(op: Send, of: int) -> tuple[Send, ...]:
    return tuple(replace(op, part=Part(index=i, of=of)) for i in range(of))


def _whole_values(plan: Plan) -> Iterator[tuple[int, Send]]:
    return ((i, op) for i, op in _each(plan, Send) if op.surface == VALUE and op.part is None)


PAPER = "paper §6.2"
M = "matrix/"
F = "family/"


# Plans: delivery --------------------------------------------------------------------------------


@_on_plan(
    "a send or broadcast is left out",
    expects="coverage availability surface",
    source="vllm-omni PR #7393: a receive without its send",
    example=M + "replica.tp2.d2.v0/semantic@1",
)
def drop_delivery(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i) for i, _ in _each(plan, Send, Broadcast))


@_on_plan(
    "one receiver of a broadcast is left out",
    expects="coverage availability surface",
    source=f"{PAPER}: demand",
    example=M + "replica.tp4.d1.v0/semantic@0",
)
def miss_receiver(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Broadcast):
        for x in op.dsts if len(op.dsts) > 1 else ():
            yield _change(plan, i, dsts=tuple(d for d in op.dsts if d != x))


@_on_plan(
    "a send or broadcast runs twice",
    expects="redelivery",
    source="TensorRT-LLM PR #12623, vllm PR #33701",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def repeat_delivery(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i, op, op) for i, op in _each(plan, Send, Broadcast))


@_on_plan(
    "a send or broadcast runs again at the plan's end",
    expects="redelivery",
    source="TensorRT-LLM PR #12623",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def deliver_again_last(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (replace(plan, ops=(*plan.ops, op)) for _, op in _each(plan, Send, Broadcast))


@_on_plan(
    "a broadcast names one receiver twice",
    expects="redelivery",
    source="TensorRT-LLM PR #12623",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def name_receiver_twice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_change(plan, i, dsts=(*op.dsts, *op.dsts[:1])) for i, op in _each(plan, Broadcast))


@_on_plan(
    "a send goes to another consumer",
    expects="coverage availability redelivery provenance substitution locality surface",
    source="the kit's own",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def retarget(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Send):
        for c in ob.consumers:
            if c != op.dst:
                yield _change(plan, i, dst=c)


@_on_plan(
    "an undemanded consumer is served as well",
    expects="",
    source="the kit's own: wasteful, and legal",
    example=M + "replica.tp2.d2.v1/semantic@0",
)
def serve_undemanded(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    sends = [op for _, op in _each(plan, Send) if op.part is None and op.src in ob.producer_set]
    for c in _idle(ob, plan) if sends else ():
        yield replace(plan, ops=(*plan.ops, replace(sends[0], dst=c)))


@_on_plan(
    "a send runs the other way",
    expects="availability",
    source="the kit's own",
    example=M + "authority.tp1.d1.v0/semantic@0",
)
def reverse_send(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_change(plan, i, src=op.dst, dst=op.src) for i, op in _each(plan, Send))


@_on_plan(
    "two neighbouring ops change places",
    expects="availability completion reduction projection coverage surface authority",
    source="vllm-omni PR #7393: a read before its delivery",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def swap_neighbours(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_moved(plan, i, i + 1) for i in range(len(plan.ops) - 1))


@_on_plan(
    "an op runs first, before what it needs",
    expects="availability completion reduction projection coverage surface authority",
    source="vllm-omni PR #7393: a read before its delivery",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def run_first(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_moved(plan, i, 0) for i in range(1, len(plan.ops)))


@_on_plan(
    "a broadcast starts at a receiver that holds nothing yet",
    expects="availability",
    source="vllm PR #40749: a rank without the decision sends it",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def swap_root(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Broadcast):
        for x in op.dsts:
            rest = tuple(op.src if d == x else d for d in op.dsts)
            yield _change(plan, i, src=x, dsts=rest)


# Plans: sources, classes, owners ----------------------------------------------------------------


@_on_plan(
    "another producer stands in for one that the plan reads",
    expects="substitution provenance authority completion",
    source=f"{PAPER}: substitution; sglang PR #20834: scattered tensors taken for replicas",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def stand_in(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for p in _sources(ob, plan):
        for q in ob.producers:
            if q != p and ob.owners is None:
                yield _reading(plan, {p: q})


@_on_plan(
    "a producer that owns nothing issues the decision",
    expects="authority",
    source=f"{PAPER}: ownership; vllm PR #40749, #44697",
    example=M + "authority.tp2.d2.v0/semantic@0",
)
def swap_owner(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for p in _sources(ob, plan):
        for q in ob.producers:
            if ob.owners is not None and p in ob.owners and q not in ob.owners:
                yield _reading(plan, {p: q})


@_on_plan(
    "one send reads another producer, whatever that holds",
    expects="substitution provenance authority availability completion",
    source="pytorch #166598: a rank reads its neighbour's slice",
    example=M + "exact_shard.tp4.d1.v0/semantic@0",
)
def resource_send(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Send):
        for q in ob.producers:
            if q != op.src:
                yield _change(plan, i, src=q)


@_on_plan(
    "two producers change places: slices in another order than the lanes",
    expects="provenance substitution authority",
    source="pytorch #166598",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def permute_lanes(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for p, q in zip(ob.producers, ob.producers[1:], strict=False):
        yield _reading(plan, {p: q, q: p})


@_on_plan(
    "the byte-only planner's proposal stands for the plan",
    expects="substitution provenance completion authority surface",
    source=f"{PAPER}: byte-only minimizer",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def byte_only(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    yield replace(plan, ops=plan_bytes(ob))


# Plans: completion ------------------------------------------------------------------------------


@_on_plan(
    "the reduction is left out: a partial is used as if complete",
    expects="completion",
    source=f"{PAPER}: reduction; pytorch #149768, #163193, PR #165962, PR #159856",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def skip_completion(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i) for i, _ in _each(plan, Reduce))


@_on_plan(
    "the reduction runs last, after what it should complete was read",
    expects="completion",
    source="pytorch PR #159856",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def delay_completion(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, _ in _each(plan, Reduce):
        yield _moved(plan, i, len(plan.ops) - 1)


@_on_plan(
    "a completed value is reduced again",
    expects="reduction",
    source="autoparallel #517",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def repeat_completion(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i, op, op) for i, op in _each(plan, Reduce))


@_on_plan(
    "a completed value is reduced again, on its way to a consumer",
    expects="reduction",
    source="autoparallel #517",
    example=F + "partial.complete.tp2.home/semantic@0",
)
def reduce_again_elsewhere(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for _, first in _each(plan, Reduce):
        for i, op in _each(plan, Broadcast):
            if op.src in ob.producer_set and op.surface == VALUE:
                yield _with(plan, i, replace(first, targets=op.dsts))


@_on_plan(
    "a producer's partial reaches the reduction through a consumer at home",
    expects="reduction",
    source="pytorch PR #165962",
    example=F + "partial.complete.tp2.home/semantic@0",
)
def reduce_through_consumer(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Reduce):
        for j, served in _each(plan, Broadcast):
            at_home = served.src in ob.producer_set and served.surface == VALUE
            if at_home and served.dsts and len(op.sources) > 1:
                *others, last = op.sources
                c = served.dsts[0]
                reads, targets = (*others, c), (*op.targets, c)
                detour = (
                    Broadcast(src=last, dsts=(c,)),
                    replace(op, sources=reads, targets=targets),
                )
                yield _with(_with(plan, j), i, *detour)


@_on_plan(
    "a value that nothing is outstanding on is reduced",
    expects="reduction",
    source="autoparallel #517",
    example=M + "exact_shard.tp2.d1.v0/semantic@0",
)
def reduce_complete_values(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    if ob.reduced is None:
        everyone = tuple(ob.producers)
        first = Reduce(operator="sum", sources=everyone, targets=everyone)
        yield replace(plan, ops=(first, *plan.ops))


@_on_plan(
    "a reduction of nothing stands for a delivery",
    expects="reduction",
    source="the kit's own",
    example=M + "exact_shard.tp2.d1.v0/semantic@0",
)
def reduce_nothing(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    operator = ob.operator or "sum"
    for i, op in _each(plan, Send):
        yield _with(plan, i, Reduce(operator=operator, sources=(), targets=(op.dst,)))


@_on_plan(
    "another operator reduces",
    expects="reduction",
    source=f"{PAPER}: reduction; pytorch PR #172041: a sum read as an average, a maximum",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def other_operator(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Reduce):
        for operator in ("maximum", "mean", "minimum", "product", "sum"):
            if operator != op.operator:
                yield _change(plan, i, operator=operator)


@_on_plan(
    "a source is left out of the reduction",
    expects="reduction",
    source=f"{PAPER}: reduction",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def reduce_fewer(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Reduce):
        for x in op.sources if len(op.sources) > 1 else ():
            yield _change(plan, i, sources=tuple(s for s in op.sources if s != x))


@_on_plan(
    "a source stands in the reduction twice",
    expects="reduction",
    source="the kit's own",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def reduce_source_twice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Reduce):
        yield _change(plan, i, sources=(*op.sources, *op.sources[:1]))
        yield _change(plan, i, sources=(*op.sources[:-1], *op.sources[:1]))


@_on_plan(
    "only one producer receives the completed value",
    expects="completion authority",
    source="pytorch #163193",
    example=M + "partial.tp2.d1.v0/semantic@1",
)
def reduce_to_one(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Reduce):
        for x in op.targets if len(op.targets) > 1 else ():
            yield _change(plan, i, targets=(x,))


@_on_plan(
    "a native reduction delivers into another domain",
    expects="locality",
    source="pytorch #126795: a collective that spans two communicators",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def reduce_across(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Reduce):
        for c in ob.demanded:
            if _home(ob, c) not in {_home(ob, x) for x in op.sources}:
                yield _change(plan, i, targets=(*op.targets, c))


@_on_plan(
    "the reduction names a target twice",
    expects="redelivery",
    source="TensorRT-LLM PR #12623",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def name_target_twice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (
        _change(plan, i, targets=(*op.targets, *op.targets[:1])) for i, op in _each(plan, Reduce)
    )


@_on_plan(
    "the partials are sent whole to each consumer, and never reduced there",
    expects="redelivery completion",
    source="pytorch PR #165962",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def send_partials(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Reduce):
        for c in ob.demanded:
            if _home(ob, c) not in {_home(ob, x) for x in op.sources}:
                partials = tuple(Send(src=p, dst=c) for p in op.sources)
                yield replace(plan, ops=(*plan.ops[:i], *partials, *plan.ops[i + 1 :]))


@_on_plan(
    "the partials travel in slices, and nobody reduces them",
    expects="completion provenance",
    source="pytorch PR #165962",
    example=F + "partial-empty.complete.tp2.d1/semantic@0",
)
def slice_partials(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, _ in _each(plan, Reduce):
        for j, op in _whole_values(plan):
            if j > i:
                yield _with(_with(plan, j, *_slices(op, 2)[: 2 if ob.elements else 1]), i)


# Plans: projection and surface ------------------------------------------------------------------


@_on_plan(
    "a projection is left out",
    expects="surface availability",
    source="vllm #57755",
    example=F + "replica.tokens.tp2.d1/reference@0",
)
def skip_projection(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i) for i, _ in _each(plan, Project))


@_on_plan(
    "a partial is projected",
    expects="completion redelivery",
    source="vllm PR #28617, PR #38199: what follows the projection comes too late",
    example=F + "partial.tokens.tp2.d1/semantic@0",
)
def project_early(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, _ in _each(plan, Reduce):
        for j, op in _each(plan, Project):
            if op.at in ob.producer_set and j > i:
                yield _moved(plan, j, i)
                for p in ob.producers:
                    if p != op.at:
                        yield _with(plan, i, replace(op, at=p), plan.ops[i])


@_on_plan(
    "a projection runs twice",
    expects="redelivery",
    source="the kit's own",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def project_twice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i, op, op) for i, op in _each(plan, Project))


@_on_plan(
    "a projection runs where its parameters never arrived",
    expects="availability",
    source="vllm PR #28617, PR #38199: a logits processor that the projection did not see",
    example=F + "replica.chosen.tp2.d1/semantic@0",
)
def project_blind(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    if ob.projected is None or not ob.projected.choices:
        return
    informed = {x for op in plan.ops if _carries(op, "parameters") for x in endpoints_of(op)}
    for p in ob.producers:
        if p not in informed:
            blind = Project(projection=ob.projected.name, at=p)
            yield replace(plan, ops=(*plan.ops, blind))


def _carries(op: AnyOp, surface: str) -> bool:
    return getattr(op, "surface", None) == surface


@_on_plan(
    "a reduction completes another surface than the one that is outstanding",
    expects="reduction availability",
    source="pytorch PR #173936: shards combined as if they were addends",
    example=F + "vocabulary.sharded.tp2.d1/semantic@0",
)
def reduce_other_surface(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    output = ob.projected.output if ob.projected else "tokens"
    for i, op in _each(plan, Reduce):
        yield _change(plan, i, surface=output if op.surface == VALUE else VALUE)


@_on_plan(
    "a slice is projected: argmax keeps the local index",
    expects="projection",
    source="pytorch PR #173936",
    example=F + "replicate.logprobs.tp2.d1/semantic@0",
)
def project_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    if ob.projected is None:
        return
    for i, op in _each(plan, Send):
        if op.part is not None:
            project = Project(projection=ob.projected.name, at=op.dst)
            rest = [x for x in plan.ops[i + 1 :] if x != project]
            yield replace(plan, ops=(*plan.ops[: i + 1], project, *rest))
            for c in _idle(ob, plan):
                spare = (replace(op, dst=c), replace(project, at=c))
                yield _with(plan, i, op, *spare)


@_on_plan(
    "another projection than the registered one",
    expects="projection",
    source="vllm PR #28617: a processor applied after the projection",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def other_projection(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_change(plan, i, projection="softmax") for i, _ in _each(plan, Project))


@_on_plan(
    "a projection that nobody asked for runs at an endpoint that holds the value",
    expects="projection",
    source="the kit's own",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def project_unasked(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    if ob.projected is None:
        for p in _sources(ob, plan)[:1]:
            yield replace(plan, ops=(*plan.ops, Project(projection="argmax", at=p)))


@_on_plan(
    "tokens cross where the value was asked for",
    expects="surface",
    source="vllm PR #52284, sglang PR #7356: tokens only, though log-probabilities were requested",
    example=F + "replica.logprobs.tp2.d1/semantic@0",
)
def narrow_surface(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    if ob.projected is None or not ob.surface.keeps_value:
        return
    name, output = ob.projected.name, ob.projected.output
    sends = [(i, op) for i, op in _whole_values(plan) if op.src in ob.producer_set]
    for i, op in sends:
        narrowed = (Project(projection=name, at=op.src), replace(op, surface=output))
        rest = [
            replace(x, surface=output) if isinstance(x, Broadcast) and x.src == op.dst else x
            for x in plan.ops[i + 1 :]
            if not isinstance(x, Project)
        ]
        yield replace(plan, ops=(*plan.ops[:i], *narrowed, *rest))


@_on_plan(
    "the value crosses where tokens were asked for, and nobody projects it",
    expects="surface availability",
    source="vllm's reduced sampling gate",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def unprojected(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    output = ob.projected and ob.projected.output
    if any(op.surface == output for _, op in _each(plan, Send)):
        ops = [
            replace(op, surface=VALUE)
            if isinstance(op, Send | Broadcast) and op.surface == output
            else op
            for op in plan.ops
            if not isinstance(op, Project)
        ]
        yield replace(plan, ops=tuple(ops))


@_on_plan(
    "one delivery carries another surface than the plan made",
    expects="availability surface coverage",
    source="vllm PR #52284",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def other_surface(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    output = ob.projected.output if ob.projected else "tokens"
    for i, op in _each(plan, Send, Broadcast, AllGather):
        yield _change(plan, i, surface=output if op.surface == VALUE else VALUE)


@_on_plan(
    "the block of tokens is cut to its first part",
    expects="availability",
    source="vllm #57755, PR #49443",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def cut_tokens(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Send):
        if op.surface != VALUE:
            cut = replace(op, part=Part(index=0, of=2))
            yield _with(plan, i, cut)
            yield _with(plan, i, cut, op)


# Plans: slices ----------------------------------------------------------------------------------


@_on_plan(
    "the value travels in slices, all of them",
    expects="",
    source="the kit's own: the same value in more frames",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def slice_value(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _whole_values(plan):
        for of in (2, 3):
            if of <= ob.elements:
                yield _with(plan, i, *_slices(op, of))


@_on_plan(
    "the value travels in slices, one of them missing",
    expects="coverage availability projection",
    source="pytorch #168134, #179502",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def miss_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _whole_values(plan):
        for of in (2, 3):
            for left in range(of):
                parts = _slices(op, of)
                yield _with(plan, i, *(parts[:left] + parts[left + 1 :]))


@_on_plan(
    "the value travels in slices, one of them twice",
    expects="redelivery",
    source="pytorch #168134",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def double_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _whole_values(plan):
        first, second = _slices(op, 2)
        yield _with(plan, i, first, first, second)
        yield _with(plan, i, first, second, first)


@_on_plan(
    "the value travels in slices of two partitions that overlap",
    expects="redelivery",
    source="pytorch #179502",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def overlap_slices(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _whole_values(plan):
        halves, thirds = _slices(op, 2), _slices(op, 3)
        yield _with(plan, i, halves[0], *thirds[1:])
        yield _with(plan, i, *thirds[1:], halves[0])
        yield _with(plan, i, thirds[0], thirds[2], halves[0], halves[1])


@_on_plan(
    "an empty slice is sent on top of the whole",
    expects="redelivery",
    source="the kit's own: a slice without elements repeats what is held",
    example=M + "authority.tp2.d2.v0/semantic@0",
)
def empty_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _whole_values(plan):
        of = ob.elements + 1
        empty = replace(op, part=Part(index=ob.elements, of=of))
        yield _with(plan, i, *_slices(op, of)[:1], empty, *_slices(op, of)[1:-1])


@_on_plan(
    "the whole is sent on top of a slice",
    expects="redelivery",
    source="pytorch #168134",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def whole_over_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i, _slices(op, 2)[1], op) for i, op in _whole_values(plan))


@_on_plan(
    "the slices of one value come from two producers",
    expects="provenance authority",
    source="sglang PR #20834: scattered tensors taken for replicas",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def mix_slices(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _whole_values(plan):
        for q in ob.producers:
            if q != op.src and op.src in ob.producer_set:
                first, second = _slices(op, 2)
                yield _with(plan, i, first, replace(second, src=q))


@_on_plan(
    "a slice is sent under another's index",
    expects="availability redelivery coverage",
    source="pytorch #168134",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def wrong_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Send):
        if op.part is not None:
            of = op.part.of
            yield _change(plan, i, part=Part(index=(op.part.index + 1) % of, of=of))


@_on_plan(
    "one slice is cut as if there were one lane more",
    expects="availability redelivery coverage",
    source="pytorch #179502",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def finer_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Send):
        if op.part is not None:
            yield _change(plan, i, part=Part(index=op.part.index, of=op.part.of + 1))


@_on_plan(
    "a slice that does not exist",
    expects=STILLBORN,
    source="the kit's own",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def slice_beyond(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Send):
        if op.part is not None:
            yield _change(plan, i, part=Part(index=op.part.of, of=op.part.of))


@_on_plan(
    "an all_gather is left out",
    expects="coverage availability",
    source="pytorch #168134",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def skip_gather(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i) for i, _ in _each(plan, AllGather))


@_on_plan(
    "a member is left out of an all_gather",
    expects="availability",
    source="pytorch #168134",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def gather_fewer(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, AllGather):
        for x in op.members:
            rest = tuple(m for m in op.members if m != x)
            yield _change(plan, i, members=rest)


@_on_plan(
    "an all_gather runs twice",
    expects="availability",
    source="vllm PR #33701",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def gather_twice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    return (_with(plan, i, op, op) for i, op in _each(plan, AllGather))


@_on_plan(
    "a member stands in an all_gather twice",
    expects="availability",
    source="the kit's own",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def name_member_twice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, AllGather):
        yield _change(plan, i, members=(*op.members, *op.members[:1]))


@_on_plan(
    "an all_gather takes in a consumer that holds nothing",
    expects="availability locality",
    source="pytorch #126795",
    example=M + "replica.tp4.d2.v0/reference@0",
)
def gather_stranger_lane(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, AllGather):
        for c in ob.consumers:
            if c not in op.members:
                yield _change(plan, i, members=(*op.members, c))


@_on_plan(
    "a broadcast of a slice stands for the all_gather",
    expects="coverage availability redelivery",
    source="pytorch #179502",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def broadcast_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, AllGather):
        for x in op.members:
            rest = tuple(m for m in op.members if m != x)
            yield _with(plan, i, Broadcast(src=x, dsts=rest))


@_on_plan(
    "broadcasts of every slice stand for the all_gather",
    expects="",
    source="the kit's own: the same whole, otherwise assembled",
    example=M + "replica.tp2.d1.v0/reference@0",
)
def broadcast_slices(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, AllGather):
        if len(op.members) == 2:
            a, b = op.members
            slices = [x for _, x in _each(plan, Send) if x.dst == b and x.part is not None]
            relay = Broadcast(src=a, dsts=(b,))
            if len(slices) == 1:
                at = plan.ops.index(slices[0])
                early = _with(_with(plan, i), at, relay, slices[0])
                yield replace(early, ops=(*early.ops[: i + 1], *_back(op, slices[0], early, i)))


def _back(op: AllGather, sent: Send, plan: Plan, at: int) -> tuple[AnyOp, ...]:
    """Slice ``sent`` goes to the first member as well, so that both hold the whole."""
    return (replace(sent, dst=op.members[0]), *plan.ops[at + 1 :])


@_on_plan(
    "a consumer that holds a slice relays it as the whole",
    expects="availability",
    source="pytorch #179502",
    example=M + "replica.tp4.d2.v0/reference@0",
)
def relay_slice(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Send):
        if op.part is not None:
            for c in ob.demanded:
                if _home(ob, c) != _home(ob, op.dst):
                    yield _with(plan, i, op, Send(src=op.dst, dst=c))
                    slices = _slices(Send(src=op.dst, dst=c), op.part.of)
                    relayed = _with(plan, i, op, *slices)
                    own = [x for x in relayed.ops if isinstance(x, Send) and x.dst == c]
                    if own != list(slices):
                        kept = [x for x in relayed.ops if x in slices or x not in own]
                        yield replace(plan, ops=tuple(kept))


@_on_plan(
    "what the consumers received is reduced among them",
    expects="locality reduction availability",
    source="the kit's own",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def reduce_at_consumers(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    if len(ob.demanded) > 1:
        everyone = tuple(ob.demanded)
        last = Reduce(operator=ob.operator or "sum", sources=everyone, targets=everyone)
        yield replace(plan, ops=(*plan.ops, last))


@_on_plan(
    "a reduction reads a consumer that holds nothing",
    expects="availability",
    source="vllm-omni PR #7393",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def reduce_absent(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Reduce):
        yield _change(plan, i, sources=(*op.sources, ob.consumers[0]))


# Plans: domains ---------------------------------------------------------------------------------


@_on_plan(
    "a native broadcast stands for a send across domains",
    expects="locality",
    source=f"{PAPER}: domain locality; pytorch #126795",
    example=M + "replica.tp2.d2.v0/semantic@0",
)
def broadcast_across(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Send):
        if op.part is None:
            yield _with(plan, i, Broadcast(src=op.src, dsts=(op.dst,), surface=op.surface))


@_on_plan(
    "a broadcast reaches into another domain",
    expects="locality",
    source=f"{PAPER}: domain locality; pytorch #126795",
    example=M + "replica.tp4.d2.v0/semantic@0",
)
def widen_broadcast(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Broadcast):
        for c in ob.consumers:
            if _home(ob, c) != _home(ob, op.src):
                ops = [
                    x
                    for x in _change(plan, i, dsts=(*op.dsts, c)).ops
                    if not (isinstance(x, Send) and x.dst == c)
                ]
                yield replace(plan, ops=tuple(ops))


@_on_plan(
    "sends stand for a native broadcast inside one domain",
    expects="locality",
    source=f"{PAPER}: domain locality",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def send_inside(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Broadcast):
        sends = [Send(src=op.src, dst=d, surface=op.surface) for d in op.dsts]
        yield _with(plan, i, *sends)


@_on_plan(
    "two domains' slices meet in one all_gather",
    expects="locality availability",
    source="pytorch #126795",
    example=M + "replica.tp4.d2.v0/reference@0",
)
def gather_across(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    """Slices for one all_gather over all demanded consumers, wherever they are."""
    members = tuple(ob.demanded)
    if any(_each(plan, AllGather)) and len(_domains(ob)) > 1:
        sends = [
            Send(src=ob.mapped[c], dst=c, part=Part(index=j, of=len(members)))
            for j, c in enumerate(members)
        ]
        rest = [op for op in plan.ops if isinstance(op, Reduce)]
        tail = [op for op in plan.ops if isinstance(op, Project)]
        yield replace(plan, ops=(*rest, *sends, AllGather(members=members), *tail))


# Plans: endpoints and identity ------------------------------------------------------------------


@_on_plan(
    "an op names an endpoint that the contract does not have",
    expects="membership",
    source="the kit's own",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def stranger(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in enumerate(plan.ops):
        match op:
            case Send():
                yield _change(plan, i, dst="x9")
                yield _with(plan, i, op, replace(op, dst="x9"))
            case Broadcast():
                yield _change(plan, i, dsts=(*op.dsts, "x9"))
                yield _with(plan, i, op, replace(op, dsts=("x9",)))
            case Project():
                yield _with(plan, i, op, replace(op, at="x9"))
            case AllGather():
                yield _change(plan, i, members=(*op.members, "x9"))
                yield _with(plan, i, op, replace(op, members=("x9",)))
            case Reduce():
                yield _change(plan, i, sources=(*op.sources, "x9"))
                yield _with(plan, i, op, replace(op, targets=("x9",)))


@_on_plan(
    "an op has nobody to deliver to",
    expects="membership",
    source="the kit's own",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def nobody(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in _each(plan, Broadcast):
        yield _with(plan, i, op, replace(op, dsts=()))
    for i, op in _each(plan, AllGather):
        yield _with(plan, i, op, replace(op, members=()))
    for i, op in _each(plan, Reduce):
        yield _with(plan, i, replace(op, targets=()), op)


@_on_plan(
    "a consumer sends what it never had",
    expects="availability",
    source="vllm PR #40749",
    example=M + "replica.tp2.d2.v1/semantic@0",
)
def send_absent(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    demanded = set(ob.demanded)
    for c in ob.consumers:
        if c not in demanded:
            for i, op in _each(plan, Send):
                if _home(ob, c) != _home(ob, op.dst):
                    yield _change(plan, i, src=c)
            home = [x for x in ob.consumers if _home(ob, x) == _home(ob, c) and x != c]
            yield replace(plan, ops=(*plan.ops, Broadcast(src=c, dsts=tuple(home) or (c,))))
            yield replace(plan, ops=(*plan.ops, Project(projection="argmax", at=c)))
            yield replace(plan, ops=(*plan.ops, AllGather(members=(c,))))
            for served in home:
                if served in demanded:
                    yield replace(plan, ops=(*plan.ops, AllGather(members=(served, c))))


@_on_plan(
    "the plan is another incarnation's: token, microbatch, epoch or request is stale",
    expects="identity",
    source=f"{PAPER}: execution identity; tenstorrent/vllm PR #396",
    example=M + "replica.tp2.d1.v0/semantic@2",
)
def stale_tag(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    tag = plan.tag
    if tag is None:
        yield replace(plan, tag=Tag(request="r", token=0, microbatch=0, epoch=0))
        return
    yield replace(plan, tag=replace(tag, token=tag.token + 1))
    yield replace(plan, tag=replace(tag, microbatch=tag.microbatch + 1))
    yield replace(plan, tag=replace(tag, epoch=tag.epoch + 1))
    yield replace(plan, tag=replace(tag, request=f"{tag.request}'"))
    yield replace(plan, tag=None)


@_on_plan(
    "the plan is another contract's",
    expects="identity",
    source=f"{PAPER}: execution identity",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def other_contract(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    yield replace(plan, contract=f"{plan.contract}'")


@_on_plan(
    "receivers, targets, sources or members are listed in another order",
    expects="",
    source="the kit's own: order inside an op means nothing",
    example=M + "replica.tp4.d1.v0/semantic@0",
)
def reorder_lists(ob: Obligations, plan: Plan) -> Iterator[Plan]:
    for i, op in enumerate(plan.ops):
        lists = {
            name: getattr(op, name)[::-1]
            for name in ("dsts", "targets", "sources", "members")
            if len(getattr(op, name, ())) > 1
        }
        if lists:
            yield _change(plan, i, **lists)


# Contracts: lineage -----------------------------------------------------------------------------


@_on_contract(
    "the replica classes are dropped",
    expects="substitution provenance contract.owner",
    source=f"{PAPER}: substitution",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def drop_classes(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.class_of:
        yield _facts(ob.contract, replica_classes=None)


@_on_contract(
    "the replica classes are evidence of a validation run only",
    expects="substitution provenance contract.owner",
    source="paper §3.4; a byte-equality gate authorizes nothing",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def demote_classes(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.replica_classes
    if fact is not None and fact.authorizes:
        yield _facts(ob.contract, replica_classes=replace(fact, origin="validation"))


@_on_contract(
    "one producer leaves its replica class",
    expects="substitution provenance contract.owner",
    source=f"{PAPER}: substitution",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def split_class(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.replica_classes
    if fact is None:
        return
    for k, members in enumerate(fact.value):
        for p in members if len(members) > 1 else ():
            rest = tuple(m for m in members if m != p)
            classes = (*fact.value[:k], rest, *fact.value[k + 1 :])
            yield _facts(ob.contract, replica_classes=replace(fact, value=classes))


@_on_contract(
    "all producers form one replica class",
    expects="",
    source="the kit's own: more lineage authorizes no less",
    example=M + "exact_shard.tp2.d1.v0/semantic@0",
)
def merge_classes(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if len(ob.producers) > 1 and ob.members(ob.producers[0]) != frozenset(ob.producers):
        merged = Fact[Any](value=(tuple(ob.producers),), origin="graph")
        yield _facts(ob.contract, replica_classes=merged)


# Contracts: authority ---------------------------------------------------------------------------


@_on_contract(
    "another producer owns the decision",
    expects="authority",
    source=f"{PAPER}: ownership",
    example=M + "authority.tp2.d2.v0/semantic@0",
)
def move_owner(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.owner
    for p in ob.producers if fact is not None else ():
        if fact is not None and p not in fact.value:
            yield _facts(ob.contract, owner=replace(fact, value=(p,)))


@_on_contract(
    "a producer comes to own what was nobody's",
    expects="authority",
    source=f"{PAPER}: ownership",
    example=M + "replica.tp2.d2.v0/semantic@1",
)
def add_owner(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    for p in ob.producers if ob.contract.facts.owner is None else ():
        yield _facts(ob.contract, owner=Fact[Any](value=(p,), origin="runtime"))


@_on_contract(
    "the owner is dropped: nothing admits its value at another's lane",
    expects="substitution provenance",
    source=f"{PAPER}: ownership",
    example=M + "authority.tp2.d2.v0/semantic@0",
)
def drop_owner(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.owners is not None:
        yield _facts(ob.contract, owner=None)


@_on_contract(
    "the owner is evidence of a validation run only",
    expects="substitution provenance",
    source="paper §3.4",
    example=M + "authority.tp2.d2.v0/semantic@0",
)
def demote_owner(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.owner
    if fact is not None and fact.authorizes:
        yield _facts(ob.contract, owner=replace(fact, origin="validation"))


@_on_contract(
    "a second owner that no class joins with the first",
    expects="contract.owner",
    source="paper §3.5: owner uniqueness",
    example=M + "authority.tp2.d2.v0/semantic@0",
)
def second_owner(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.owner
    if fact is not None and fact.authorizes and not ob.class_of and len(ob.producers) > 1:
        for other in [p for p in ob.producers if p not in fact.value][:1]:
            yield _facts(ob.contract, owner=replace(fact, value=(*fact.value, other)))


@_on_contract(
    "authority is required, and nobody has it",
    expects="contract.owner",
    source="paper §3.5: owner uniqueness",
    example=M + "replica.tp2.d2.v0/semantic@0",
)
def no_owner(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    yield _facts(ob.contract, owner=Fact[Any](value=(), origin="runtime"))


@_on_contract(
    "the owner is no producer of the contract",
    expects=STILLBORN,
    source="the kit's own",
    example=M + "replica.tp2.d2.v0/semantic@0",
)
def dangling_owner(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    yield _facts(ob.contract, owner=Fact[Any](value=("x9",), origin="runtime"))


# Contracts: reduction and placement -------------------------------------------------------------


@_on_contract(
    "the reduction is dropped",
    expects="contract.reduction",
    source=f"{PAPER}: reduction",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def drop_reduction(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.reduced is not None:
        yield _facts(ob.contract, reduction=None)


@_on_contract(
    "the reduction is evidence of a validation run only",
    expects="contract.reduction",
    source="paper §3.4",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def demote_reduction(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.reduction
    if fact is not None and fact.authorizes:
        yield _facts(ob.contract, reduction=replace(fact, origin="validation"))


@_on_contract(
    "placement and reduction fact name another operator",
    expects="reduction",
    source="pytorch PR #172041",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def other_reduction(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.reduction
    if fact is not None and ob.partial:
        changed = replace(fact, value=Reduction(op="maximum", sources=fact.value.sources))
        contract = replace(ob.contract, placement=Partial(op="maximum"))
        yield _facts(contract, reduction=changed)


@_on_contract(
    "the reduction fact names another operator than the placement",
    expects="contract.reduction",
    source="paper §3.5: reduction lineage",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def contradict_operator(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.reduction
    if fact is not None:
        changed = Reduction(op="maximum", sources=fact.value.sources)
        yield _facts(ob.contract, reduction=replace(fact, value=changed))


@_on_contract(
    "the reduction fact leaves a producer out",
    expects="contract.reduction",
    source="paper §3.5: reduction lineage",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def forget_addend(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.reduction
    if fact is not None and len(fact.value.sources) > 1:
        changed = Reduction(op=fact.value.op, sources=fact.value.sources[1:])
        yield _facts(ob.contract, reduction=replace(fact, value=changed))


@_on_contract(
    "a partial's producers span two native domains",
    expects="contract.reduction contract.projection",
    source="pytorch #126795",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def split_producers(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    contract = ob.contract
    if ob.reduced is not None and len(ob.producers) > 1:
        *rest, last = contract.producers
        moved = replace(last, domain="apart")
        domains = {**contract.domains, "apart": Domain(stack="cpu")}
        yield replace(contract, producers=(*rest, moved), domains=domains)


@_on_contract(
    "the value is complete and still said to be reduced",
    expects="contract.reduction contract.projection",
    source="autoparallel #517",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def complete_placement(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.reduced is not None:
        yield replace(ob.contract, placement=Replicate())


@_on_contract(
    "the value is complete already: the old plan reduces it again",
    expects="reduction contract.projection",
    source="autoparallel #517",
    example=M + "partial.tp2.d1.v0/semantic@0",
)
def completed_upstream(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.reduced is not None:
        classes = Fact[Any](value=(tuple(ob.producers),), origin="graph")
        contract = replace(ob.contract, placement=Replicate())
        yield _facts(contract, reduction=None, replica_classes=classes)


@_on_contract(
    "the producers hold partials that no fact completes",
    expects="contract.reduction contract.projection",
    source="pytorch #149768",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def partial_placement(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if not ob.partial:
        yield replace(ob.contract, placement=Partial(op="sum"))


@_on_contract(
    "the producers hold partials, and a fact says so",
    expects="completion contract.projection",
    source="pytorch #149768, #163193",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def outstanding_reduction(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if not ob.partial:
        fact = Fact[Any](value=Reduction(op="sum", sources=tuple(ob.producers)), origin="graph")
        yield _facts(replace(ob.contract, placement=Partial(op="sum")), reduction=fact)


@_on_contract(
    "the producers hold shards, and no lineage",
    expects="provenance contract.projection contract.owner",
    source="sglang PR #20834: scattered tensors taken for replicas",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def shard_placement(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.replicate and ob.contract.value.shape:
        yield _facts(replace(ob.contract, placement=Shard(dim=0)), replica_classes=None)


@_on_contract(
    "the value is sharded along the axis that is projected",
    expects="contract.projection",
    source="pytorch PR #173936",
    example=F + "shard.tokens.tp2.d1/semantic@0",
)
def shard_projected_axis(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.projected is not None and not ob.partial:
        last = len(ob.contract.value.shape) - 1
        yield replace(ob.contract, placement=Shard(dim=last))


# Contracts: demand ------------------------------------------------------------------------------


def _demanding(contract: Contract, flags: dict[str, bool]) -> Contract:
    consumers = tuple(replace(c, demanded=flags.get(c.id, c.demanded)) for c in contract.consumers)
    return replace(contract, consumers=consumers)


@_on_contract(
    "one more consumer is demanded",
    expects="coverage",
    source=f"{PAPER}: demand",
    example=M + "replica.tp2.d1.v2/semantic@0",
)
def widen_demand(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    demanded = set(ob.demanded)
    for c in ob.consumers:
        if c not in demanded:
            yield _demanding(ob.contract, {c: True})


@_on_contract(
    "the demand is unknown: every consumer counts as demanded",
    expects="coverage",
    source=f"{PAPER}: demand; paper §3.4",
    example=M + "replica.tp2.d1.v2/semantic@0",
)
def forget_demand(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.demand
    if fact is not None and len(ob.demanded) < len(ob.consumers):
        yield _facts(ob.contract, demand=None)
        yield _facts(ob.contract, demand=replace(fact, origin="validation"))


@_on_contract(
    "one consumer is demanded no more",
    expects="",
    source="the kit's own: the old plan does too much, and nothing wrong",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def narrow_demand(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.contract.facts.demand is not None and len(ob.demanded) > 1:
        for c in ob.demanded:
            yield _demanding(ob.contract, {c: False})


@_on_contract(
    "nobody is demanded",
    expects="contract.demand",
    source="paper §3.5",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def demand_nobody(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.contract.facts.demand is not None:
        yield _demanding(ob.contract, dict.fromkeys(ob.consumers, False))


@_on_contract(
    "a consumer maps to another producer",
    expects="provenance substitution",
    source="pytorch #166598",
    example=M + "exact_shard.tp2.d2.v0/semantic@0",
)
def remap_consumer(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    contract = ob.contract
    for i, c in enumerate(contract.consumers):
        for p in ob.producers:
            if p != c.source:
                yield _consumer(contract, i, source=p)


def _consumer(contract: Contract, at: int, **fields: Any) -> Contract:
    consumers: list[Consumer] = list(contract.consumers)
    consumers[at] = replace(consumers[at], **fields)
    return replace(contract, consumers=tuple(consumers))


@_on_contract(
    "a consumer moves into a domain of its own",
    expects="locality",
    source=f"{PAPER}: domain locality",
    example=M + "replica.tp2.d1.v0/semantic@1",
)
def isolate_consumer(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    contract = replace(ob.contract, domains={**ob.contract.domains, "apart": Domain(stack="cpu")})
    for i, _ in enumerate(contract.consumers):
        yield _consumer(contract, i, domain="apart")


@_on_contract(
    "a consumer moves into the producers' domain",
    expects="locality",
    source=f"{PAPER}: domain locality",
    example=M + "replica.tp2.d2.v0/semantic@0",
)
def colocate_consumer(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    home = ob.contract.producers[0].domain
    for i, c in enumerate(ob.contract.consumers):
        if c.domain != home:
            yield _consumer(ob.contract, i, domain=home)


# Contracts: surface, value, identity ------------------------------------------------------------


def _surface(contract: Contract, surface: Any) -> Contract:
    return _facts(contract, surface=Fact[Any](value=surface, origin="runtime"))


@_on_contract(
    "the request comes to ask for more: tokens or log-probabilities",
    expects="surface projection contract.projection",
    source="vllm PR #52284, sglang PR #7356",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def widen_surface(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if not isinstance(ob.surface, Logprobs):
        yield _surface(ob.contract, Logprobs())
    if isinstance(ob.surface, Complete):
        yield _surface(ob.contract, Tokens())


@_on_contract(
    "the surface is unknown: complete values are due",
    expects="surface projection",
    source="paper §3.4: an absent fact selects the reference obligation",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def forget_surface(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    fact = ob.contract.facts.surface
    if fact is not None and not isinstance(ob.surface, Complete):
        yield _facts(ob.contract, surface=None)
        yield _facts(ob.contract, surface=replace(fact, origin="validation"))


@_on_contract(
    "the request comes to ask for less: tokens only",
    expects="",
    source="the kit's own: the old plan carries too much, and nothing wrong",
    example=F + "replica.logprobs.tp2.d1/semantic@0",
)
def narrow_request(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if isinstance(ob.surface, Logprobs):
        yield _surface(ob.contract, Tokens())


@_on_contract(
    "the output type cannot hold the largest token id",
    expects="contract.projection",
    source="vllm's reduced sampling gate: token ids packed into a float",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def narrow_output(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.projected is not None:
        yield _surface(ob.contract, replace(ob.surface, output_dtype="float8_e5m2"))


@_on_contract(
    "the projected value is no floating-point value",
    expects="contract.projection",
    source="paper §3.5: projection preconditions",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def integer_value(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.projected is not None:
        yield replace(ob.contract, value=replace(ob.contract.value, dtype="int32"))


@_on_contract(
    "the axis to project has no length",
    expects="contract.projection",
    source="paper §3.5: projection preconditions",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def empty_axis(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.projected is not None:
        shape = (*ob.contract.value.shape[:-1], 0)
        yield replace(ob.contract, value=replace(ob.contract.value, shape=shape))


@_on_contract(
    "the value to project is a scalar",
    expects="contract.projection",
    source="paper §3.5: projection preconditions",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def scalar_value(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.projected is not None and ob.replicate:
        yield replace(ob.contract, value=replace(ob.contract.value, shape=()))


@_on_contract(
    "the value is twice as long, and as wide",
    expects="",
    source="the kit's own: legality does not depend on the payload",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def resize_value(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    value = ob.contract.value
    if ob.projected is None or not ob.projected.choices:
        yield replace(ob.contract, value=replace(value, shape=tuple(2 * n for n in value.shape)))


@_on_contract(
    "the last column is padding that no projection may pick",
    expects="",
    source="the kit's own: padding is the projection's business",
    example=F + "replica.tokens.tp2.d1/semantic@0",
)
def pad_value(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    value = ob.contract.value
    projected = ob.projected
    if projected is not None and projected.vocabulary is None and value.shape[-1:] > (1,):
        yield replace(ob.contract, value=replace(value, valid_last=value.shape[-1] - 1))


@_on_contract(
    "shards that make up a vocabulary have padding of their own",
    expects="contract.projection",
    source="the kit's own: the vocabulary says what is padding",
    example=F + "vocabulary.sharded.tp2.d1/semantic@0",
)
def pad_shards(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    value = ob.contract.value
    if ob.projected is not None and ob.projected.vocabulary is not None and value.shape:
        yield replace(ob.contract, value=replace(value, valid_last=value.shape[-1]))


@_on_contract(
    "the vocabulary is larger than the shards that make it up",
    expects="contract.projection",
    source="pytorch PR #173936",
    example=F + "vocabulary.sharded.tp2.d1/semantic@0",
)
def outgrow_shards(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if isinstance(ob.surface, ShardedTokens):
        yield _surface(ob.contract, replace(ob.surface, vocabulary=2 * ob.surface.vocabulary))


@_on_contract(
    "a shard stands for the whole vocabulary",
    expects="contract.projection",
    source="pytorch PR #173936: argmax on a shard keeps the local index",
    example=F + "vocabulary.sharded.tp2.d1/semantic@0",
)
def shard_rows(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if ob.projected is not None and ob.projected.vocabulary is not None:
        yield replace(ob.contract, placement=Shard(dim=0))


@_on_contract(
    "more of the largest are asked for than there are",
    expects="contract.projection",
    source="the kit's own",
    example=F + "replica.top.tp2.d1/semantic@0",
)
def ask_for_more_than_all(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if isinstance(ob.surface, TopLogprobs):
        yield _surface(ob.contract, replace(ob.surface, k=ob.contract.value.shape[-1] + 1))


@_on_contract(
    "a row has no choice, or one that cannot be made",
    expects="contract.projection",
    source="vllm PR #40749: a rank that draws without the others' key",
    example=F + "replica.chosen.tp2.d1/semantic@0",
)
def misfit_choice(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    if isinstance(ob.surface, ChosenTokens):
        first, *rest = ob.surface.choices
        yield _surface(ob.contract, replace(ob.surface, choices=(first,)))
        unkeyed = replace(first, temperature=1.0, seed=None)
        yield _surface(ob.contract, replace(ob.surface, choices=(unkeyed, *rest)))


@_on_contract(
    "the contract moves on to the next epoch, token or request",
    expects="identity",
    source=f"{PAPER}: execution identity; tenstorrent/vllm PR #396",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def advance_epoch(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    tag = ob.contract.tag
    if tag is None:
        yield replace(ob.contract, tag=Tag(request="r", token=0, microbatch=0, epoch=0))
        return
    yield replace(ob.contract, tag=replace(tag, epoch=tag.epoch + 1))
    yield replace(ob.contract, tag=replace(tag, token=tag.token + 1))
    yield replace(ob.contract, tag=replace(tag, request=f"{tag.request}'"))


@_on_contract(
    "the contract has another name",
    expects="identity",
    source=f"{PAPER}: execution identity",
    example=M + "replica.tp2.d1.v0/semantic@0",
)
def rename_contract(ob: Obligations, plan: Plan) -> Iterator[Contract]:
    yield replace(ob.contract, name=f"{ob.contract.name}'")


PAPER_EIGHT: dict[str, str] = {
    "demand: a demanded consumer is missed": OPERATORS["miss-receiver"].example,
    "demand: one more consumer is demanded": OPERATORS["widen-demand"].example,
    "reduction: left out": OPERATORS["skip-completion"].example,
    "reduction: another operator": OPERATORS["other-operator"].example,
    "substitution: lineage dropped": OPERATORS["drop-classes"].example,
    "ownership: another producer issues": OPERATORS["swap-owner"].example,
    "domain locality: a native broadcast across": OPERATORS["broadcast-across"].example,
    "execution identity: a stale epoch": OPERATORS["stale-tag"].example,
}
"""The paper's eight targeted mutations (§6.2) as this kit reads them: it names six obligations
and eight mutations, not the mutations themselves."""
