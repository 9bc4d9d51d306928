"""Small contracts for tests, by keyword."""

from __future__ import annotations

from typing import Any

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
from sembridge.layout import Partial, Placement, Replicate
from sembridge.plan import Plan, Tag
from sembridge.surfaces import Surface

TAG = Tag(request="r", token=1, microbatch=0, epoch=2)


def contract(
    tp: int = 2,
    *,
    tails: str = "",
    sources: str = "",
    demanded: str | None = None,
    placement: Placement | None = None,
    shape: tuple[int, ...] = (2, 6),
    dtype: str = "float32",
    valid_last: int | None = None,
    classes: tuple[tuple[str, ...], ...] | None = None,
    classes_origin: Any = "graph",
    reduce: str | None = None,
    owner: tuple[str, ...] | None = None,
    surface: Surface | None = None,
    name: str = "edge",
) -> Contract:
    """``tp`` producers in domain ``h``; one consumer for each letter of ``tails``, its domain.

    ``sources`` gives each consumer's producer index in hexadecimal, ``demanded`` a 0 or 1 for each.
    """
    tails = tails or "t" * tp
    producers = tuple(f"p{i}" for i in range(tp))
    sources = sources or "".join(f"{i % tp:x}" for i in range(len(tails)))
    flags = demanded or "1" * len(tails)
    if reduce is not None and placement is None:
        placement = Partial(op=reduce)
    return Contract(
        name=name,
        value=Value(kind="logits", shape=shape, dtype=dtype, valid_last=valid_last),
        domains={d: Domain(stack="cann" if d == "h" else "cuda") for d in sorted({*tails, "h"})},
        producers=tuple(Producer(id=p, domain="h") for p in producers),
        consumers=tuple(
            Consumer(id=f"c{i}", domain=d, source=f"p{int(s, 16)}", demanded=f == "1")
            for i, (d, s, f) in enumerate(zip(tails, sources, flags, strict=True))
        ),
        placement=placement or Replicate(),
        facts=Facts(
            replica_classes=None if classes is None else Fact(value=classes, origin=classes_origin),
            reduction=None
            if reduce is None
            else Fact(value=Reduction(op=reduce, sources=producers), origin="graph"),
            owner=None if owner is None else Fact(value=owner, origin="runtime"),
            demand=DemandFact(origin="runtime"),
            surface=None if surface is None else Fact(value=surface, origin="runtime"),
        ),
        tag=TAG,
    )


def plan(*ops: Any, name: str = "edge", tag: Tag | None = TAG) -> Plan:
    """A plan for :func:`contract`'s contracts."""
    return Plan(contract=name, tag=tag, ops=ops)
