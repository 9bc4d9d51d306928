"""Random contracts and plans, inside the bounded family and beyond it."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from sembridge.contract import (
    Consumer,
    Contract,
    DemandFact,
    Domain,
    Fact,
    Facts,
    Producer,
    Reduction,
    Value,
)
from sembridge.errors import ContractRejected
from sembridge.kernels import KERNELS
from sembridge.layout import Partial, Replicate, Shard
from sembridge.lowering import LADDER, REFERENCE, SEMANTIC, lower
from sembridge.obligations import resolve, validate
from sembridge.plan import AllGather, Broadcast, Part, Plan, Project, Reduce, Send, Tag
from sembridge.surfaces import (
    Choice,
    ChosenTokens,
    Complete,
    Logprobs,
    ShardedTokens,
    ShardedTopLogprobs,
    Surface,
    Tokens,
    TopLogprobs,
)

OPERATORS = ("sum", "product", "minimum", "maximum")
DTYPES = ("float32", "bfloat16", "float16", "int32", "int8")


@st.composite
def choices(draw: st.DrawFn, columns: int) -> Choice:
    """One row's choice among ``columns`` tokens: greedy or keyed, modified or not."""
    ids = st.lists(st.integers(0, columns - 1), max_size=3, unique=True).map(tuple)
    sampled = draw(st.booleans())
    return Choice(
        temperature=draw(st.sampled_from([0.5, 1.0, 1.7])) if sampled else 0.0,
        top_k=draw(st.integers(0, 3)) if sampled else 0,
        top_p=draw(st.sampled_from([1.0, 0.9, 0.3])) if sampled else 1.0,
        seed=draw(st.integers(-(2**63), 2**63 - 1)) if sampled else None,
        position=draw(st.integers(0, 2**40)) if sampled else None,
        allowed=draw(st.one_of(st.none(), ids)),
        banned=draw(ids),
        bias=tuple((i, draw(st.sampled_from([-2.5, 0.0, 30.0]))) for i in draw(ids)),
    )


@st.composite
def projected_surfaces(draw: st.DrawFn, shape: tuple[int, ...], producers: int) -> Surface:
    """A surface beyond the paper's for values of ``shape``; it may still fail validation."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    several = st.lists(choices(shape[-1]), min_size=rows, max_size=rows).map(tuple)
    k = draw(st.integers(0, min(shape[-1], 3)))
    dtype = draw(st.sampled_from(["int32", "int64"]))
    given = draw(st.sampled_from(["consumers", "consumers", "everywhere"]))
    match draw(st.integers(0, 3)):
        case 0:
            chosen = draw(st.one_of(st.just(()), several))
            return TopLogprobs(k=k, choices=chosen, given=given, output_dtype=dtype)
        case 1:
            return ChosenTokens(choices=draw(several), given=given, output_dtype=dtype)
        case kind:
            vocabulary = draw(st.integers(1, producers * shape[-1]))
            if kind == 2:
                return ShardedTokens(vocabulary=vocabulary, output_dtype=dtype)
            return ShardedTopLogprobs(k=k, vocabulary=vocabulary, output_dtype=dtype)


@st.composite
def contracts(
    draw: st.DrawFn,
    *,
    producers: int = 5,
    consumers: int = 5,
    domains: int = 3,
    beyond: bool = False,
) -> Contract:
    """Any contract whose references hold; it may still fail validation.

    ``beyond`` asks for the surfaces that the paper does not have.
    """
    names = [f"d{i}" for i in range(draw(st.integers(1, domains)))]
    spread = draw(st.integers(0, 3)) == 0
    ps = [
        Producer(id=f"p{i}", domain=draw(st.sampled_from(names)) if spread else names[0])
        for i in range(draw(st.integers(1, producers)))
    ]
    ids = [p.id for p in ps]
    cs = [
        Consumer(
            id=f"c{i}",
            domain=draw(st.sampled_from(names)),
            source=draw(st.sampled_from(ids)),
            demanded=draw(st.integers(0, 3)) > 0,
        )
        for i in range(draw(st.integers(1, consumers)))
    ]
    shape = draw(
        st.sampled_from([(1,), (7,), (2, 3), (3, 8), (2, 1), (2, 17), (0, 4), (4,), (1, 2)])
    )
    surface = draw(
        projected_surfaces(shape, len(ids))
        if beyond
        else st.sampled_from([None, Complete(), Tokens(), Logprobs(), Tokens(output_dtype="int64")])
    )
    placement = draw(
        st.one_of(
            st.just(Replicate()),
            st.just(Replicate()),
            st.just(Shard(dim=0)),
            st.sampled_from(OPERATORS).map(lambda op: Partial(op=op)),
        )
    )
    if isinstance(surface, ShardedTokens | ShardedTopLogprobs):
        placement = Shard(dim=len(shape) - 1)
    origins = st.sampled_from(["graph", "runtime", "runtime", "validation"])
    classes = reduction = owner = None
    if draw(st.booleans()):
        groups: dict[int, list[str]] = {}
        for p in ids:
            groups.setdefault(draw(st.integers(0, 2)), []).append(p)
        chosen = [tuple(g) for g in groups.values() if draw(st.integers(0, 4)) > 0]
        classes = Fact(value=tuple(chosen), origin=draw(origins))
    if isinstance(placement, Partial) and draw(st.integers(0, 5)) > 0:
        reduction = Fact(value=Reduction(op=placement.op, sources=tuple(ids)), origin="graph")
    if draw(st.integers(0, 2)) == 0:
        owner = Fact(value=(draw(st.sampled_from(ids)),), origin=draw(origins))
    dtype = draw(st.sampled_from(DTYPES if not (surface and surface.projected) else DTYPES[:3]))
    valid = draw(st.sampled_from([None, None, shape[-1], max(1, shape[-1] - 1)]))
    if getattr(surface, "vocabulary", None) is not None:
        valid = None
    return Contract(
        name="random",
        value=Value(kind="logits", shape=shape, dtype=dtype, valid_last=valid),
        domains={n: Domain(stack=draw(st.sampled_from(["cuda", "cann", "cpu"]))) for n in names},
        producers=tuple(ps),
        consumers=tuple(cs),
        placement=placement,
        facts=Facts(
            replica_classes=classes,
            reduction=reduction,
            owner=owner,
            demand=draw(
                st.sampled_from([None, DemandFact(origin="runtime"), DemandFact(origin="runtime")])
            ),
            surface=None if surface is None else Fact(value=surface, origin=draw(origins)),
        ),
        tag=draw(st.sampled_from([None, Tag(request="r", token=3, microbatch=0, epoch=1)])),
    )


def valid_contracts(**bounds: Any) -> st.SearchStrategy[Contract]:
    """Contracts that pass static validation."""
    return contracts(**bounds).filter(lambda c: not validate(resolve(c)))


@st.composite
def ops(draw: st.DrawFn, contract: Contract) -> Any:
    """Any op over the contract's endpoints, sensible or not."""
    ids = [p.id for p in contract.producers] + [c.id for c in contract.consumers]
    one = st.sampled_from(ids)
    some = st.lists(one, min_size=1, max_size=4).map(tuple)
    fact = contract.facts.surface
    projected = None if fact is None else fact.value.projected
    output = "tokens" if projected is None else projected.output
    surface = st.sampled_from(["value", "value", output, "parameters"])
    parts = st.integers(1, 4).flatmap(
        lambda of: st.integers(0, of - 1).map(lambda i: Part(index=i, of=of))
    )
    return draw(
        st.one_of(
            st.builds(
                Send, src=one, dst=one, surface=surface, part=st.one_of(st.none(), st.none(), parts)
            ),
            st.builds(Broadcast, src=one, dsts=some, surface=surface),
            st.builds(
                Project,
                projection=st.sampled_from(
                    [projected.name if projected else "argmax", *sorted(KERNELS)][:3]
                ),
                at=one,
            ),
            st.builds(AllGather, members=some, surface=st.just("value")),
            st.builds(
                Reduce,
                operator=st.sampled_from(
                    [projected.combine]
                    if projected and projected.combine and draw(st.booleans())
                    else OPERATORS
                ),
                sources=st.one_of(some, st.just(tuple(p.id for p in contract.producers))),
                targets=some,
                surface=st.sampled_from(["value", output]),
            ),
        )
    )


@st.composite
def plans(draw: st.DrawFn, contract: Contract) -> Plan:
    """A lowered plan with a few random edits: often legal, often nearly so."""
    policy = draw(st.sampled_from([SEMANTIC, REFERENCE, *LADDER]))
    try:
        plan = lower(contract, policy)
    except ContractRejected:
        plan = Plan(contract=contract.name, tag=contract.tag, ops=())
    sequence = list(plan.ops)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(sequence)))
        match draw(st.integers(0, 3)):
            case 0:
                sequence.insert(at, draw(ops(contract)))
            case 1 if at < len(sequence):
                del sequence[at]
            case 2 if at < len(sequence):
                sequence[at] = draw(ops(contract))
            case 3 if len(sequence) > 1:
                other = draw(st.integers(0, len(sequence) - 1))
                at = min(at, len(sequence) - 1)
                sequence[at], sequence[other] = sequence[other], sequence[at]
            case _:
                pass
    return Plan(contract=plan.contract, tag=plan.tag, ops=tuple(sequence))
