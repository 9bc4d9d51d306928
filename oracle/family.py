"""Every contract within the bounds, up to symmetry: what the oracle is run over.

Left out is only what no obligation names and no planner may read: undemanded consumers, and the
source map and classes of a contract whose sources an owner or a reduction decides. Tests hold
that adding them changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from msgspec import Struct

from oracle.program import BOUNDS, Bounds
from oracle.symmetry import Producers, Sketch, partitions, sketches, stabilizer
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
from sembridge.layout import Partial, Placement, Replicate, Shard
from sembridge.surfaces import Complete, Logprobs, Surface, Tokens


class Payload(Struct, frozen=True, kw_only=True):
    """A value and the surface asked of it."""

    shape: tuple[int, ...]
    dtype: str
    surface: Surface


PAYLOADS: dict[str, Payload] = {
    "complete": Payload(shape=(15,), dtype="bfloat16", surface=Complete()),
    "tokens": Payload(shape=(3, 5), dtype="float32", surface=Tokens()),
    "tokens-narrow": Payload(shape=(3, 3), dtype="bfloat16", surface=Tokens()),
    "tokens-wider": Payload(shape=(3, 3), dtype="float8_e4m3fn", surface=Tokens()),
    "logprobs": Payload(shape=(3, 5), dtype="float32", surface=Logprobs()),
}
"""Odd element counts, so that no slicing divides; three token ids (12 bytes) against a value of
60, of 18 (two lanes' tokens are more than one sliced value) and of 9 (tokens are the larger)."""

PLACEMENTS: dict[str, Placement] = {
    "replicate": Replicate(),
    "shard": Shard(dim=0),
    "partial": Partial(op="sum"),
}
MAPS_SOURCES = ("replicate", "shard")


class Cell(NamedTuple):
    """One part of the family: an obligation over one producers' side, with one payload."""

    placement: str
    producers: Producers
    payload: str

    @property
    def key(self) -> str:
        """Short, unique and stable: ``replicate/0011/-/1/tokens``."""
        domains, classes, owners = self.producers
        parts = ["".join(map(str, part)) or "-" for part in (domains, classes or (), owners)]
        return "/".join([self.placement, *parts, self.payload])


def producer_sides(bounds: Bounds = BOUNDS) -> Iterator[tuple[str, Producers]]:
    """Placements and canonical producers' sides.

    Owners are one producer, or several that one class joins; a reduction's producers share a
    domain, as its validation asks.
    """
    for n in range(1, bounds.producers + 1):
        for domains in partitions(n):
            for placement in PLACEMENTS:
                if placement == "partial" and max(domains):
                    continue
                lineages = [None, *partitions(n)] if placement != "partial" else [None]
                sides = [Producers(domains, classes, ()) for classes in lineages]
                sides += _owned(domains)
                yield from ((placement, p) for p in sides if stabilizer(p) is not None)


def _owned(domains: tuple[int, ...]) -> Iterator[Producers]:
    everyone = range(len(domains))
    for size in range(1, len(domains) + 1):
        for owners in combinations(everyone, size):
            joined: list[int] = []
            for p in everyone:
                first = p in owners and p != owners[0]
                joined.append(joined[owners[0]] if first else len(set(joined)))
            yield Producers(domains, tuple(joined) if size > 1 else None, owners)


def cells(bounds: Bounds = BOUNDS) -> list[Cell]:
    """The family's parts, in a stable order."""
    return [
        Cell(placement, producers, payload)
        for placement, producers in producer_sides(bounds)
        for payload in PAYLOADS
    ]


def members(cell: Cell, bounds: Bounds = BOUNDS) -> Iterator[tuple[Contract, int]]:
    """The contracts of one part, each with the number of named contracts it stands for."""
    decided = cell.producers.owners or cell.placement == "partial"
    for index, sketch in enumerate(
        sketches(
            cell.producers,
            consumers=bounds.demanded,
            domains=bounds.domains,
            sources=not decided,
        )
    ):
        yield contract_of(cell, sketch, f"{cell.key}/{index}"), sketch.orbit


def contract_of(cell: Cell, sketch: Sketch, name: str) -> Contract:
    """A sketch with names: producers p0.., consumers c0.., domains d0.."""
    domains, classes, owners = sketch.producers
    payload = PAYLOADS[cell.payload]
    n = len(domains)
    blocks = sorted(set(classes or ()))
    lineage = tuple(
        [tuple([f"p{i}" for i, b in enumerate(classes or ()) if b == block]) for block in blocks]
    )
    everyone = tuple([f"p{i}" for i in range(n)])
    partial = cell.placement == "partial"
    used = {*domains, *[d for d, _ in sketch.consumers]}
    return Contract(
        name=name,
        value=Value(kind="value", shape=payload.shape, dtype=payload.dtype),
        domains={f"d{d}": Domain(stack="cuda" if d % 2 else "cann") for d in sorted(used)},
        producers=tuple([Producer(id=f"p{i}", domain=f"d{d}") for i, d in enumerate(domains)]),
        consumers=tuple(
            [
                Consumer(id=f"c{i}", domain=f"d{d}", source=f"p{p}", demanded=True)
                for i, (d, p) in enumerate(sketch.consumers)
            ]
        ),
        placement=PLACEMENTS[cell.placement],
        facts=Facts(
            replica_classes=Fact(value=lineage, origin="graph") if lineage else None,
            reduction=Fact(value=Reduction(op="sum", sources=everyone), origin="graph")
            if partial
            else None,
            owner=Fact(value=tuple([f"p{o}" for o in owners]), origin="runtime")
            if owners
            else None,
            demand=DemandFact(origin="runtime"),
            surface=Fact(value=payload.surface, origin="runtime"),
        ),
    )
