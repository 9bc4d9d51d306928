"""The checker's state (semantics of §3.3): who holds which surface, how much, from whom.

A holding is ⟨parts, complete, sources, issuers⟩ over (endpoint, surface). Producers' own values
appear when first read, so a state grows with the ops, not with the contract.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from sembridge.layout import slice_bounds
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, Part

Span = tuple[int, int]
"""Start and stop of a run of elements of the flattened value."""

WHOLE: list[Span] = []
"""Stands for every element; a whole holding is never changed, so endpoints may share it."""

ALL: tuple[None] = (None,)


class Holding:
    """What one endpoint has of one surface. ``sources`` is provenance, ``issuers`` authority."""

    __slots__ = ("complete", "issuers", "pieces", "size", "sources")

    def __init__(
        self,
        complete: bool,
        sources: AbstractSet[str],
        issuers: AbstractSet[str],
        pieces: list[Span] = WHOLE,
        size: int = 0,
    ) -> None:
        self.complete, self.sources, self.issuers = complete, sources, issuers
        self.pieces, self.size = pieces, size

    def add(self, piece: Span, sent: Holding) -> None:
        """Take over a slice that is not here yet; only an incomplete holding may change."""
        if piece[0] < piece[1]:
            insort(self.pieces, piece)
            self.size += piece[1] - piece[0]
        self.complete &= sent.complete
        self.sources = self.sources | sent.sources
        self.issuers = self.issuers | sent.issuers

    @property
    def whole(self) -> bool:
        """Every element is here."""
        return self.pieces is WHOLE

    @property
    def spans(self) -> Sequence[Span | None]:
        """What a broadcast of this holding delivers; None stands for the whole."""
        return ALL if self.pieces is WHOLE else self.pieces

    def covers(self, span: Span | None) -> bool:
        """Whether every element of ``span`` is here (None: of the whole)."""
        if self.pieces is WHOLE:
            return True
        if span is None:
            return False
        start, stop = span
        at = bisect_left(self.pieces, (start + 1,)) - 1
        while start < stop:
            if at < 0 or at >= len(self.pieces):
                return False
            piece = self.pieces[at]
            if not piece[0] <= start < piece[1]:
                return False
            start, at = piece[1], at + 1
        return True


def overlaps(held: Holding, span: Span | None) -> bool:
    """Whether a delivery of ``span`` repeats elements; an empty slice repeats what is held."""
    if held.pieces is WHOLE or span is None or span[0] == span[1]:
        return True
    at = bisect_left(held.pieces, span)
    for piece in held.pieces[max(at - 1, 0) : at + 1]:
        if piece[0] < span[1] and span[0] < piece[1]:
            return True
    return False


def disjoint_cover(held: Iterable[Holding], elements: int) -> bool:
    """Whether the holdings' slices are disjoint and together every one of ``elements``."""
    pieces: list[Span] = []
    for h in held:
        pieces.extend([(0, elements)] if h.pieces is WHOLE else h.pieces)
    pieces.sort()
    reached = 0
    for start, stop in pieces:
        if start == stop:
            continue
        if start != reached:
            return False
        reached = stop
    return reached == elements


class Copies(dict[str, "Holding | None"]):
    """Who holds one surface; nobody does until an op delivers it."""

    def __missing__(self, endpoint: str) -> Holding | None:
        return None


class Values(Copies):
    """Who holds the value; a producer's own appears when first read."""

    def __init__(self, ob: Obligations) -> None:
        super().__init__()
        self._producers, self._complete = ob.producer_set, not ob.partial

    def __missing__(self, endpoint: str) -> Holding | None:
        if endpoint not in self._producers:
            return None
        itself = frozenset((endpoint,))
        held = self[endpoint] = Holding(self._complete, itself, itself)
        return held


class Surfaces(dict[str, Copies]):
    """Copies by surface; one that nobody named yet has none."""

    def __missing__(self, surface: str) -> Copies:
        copies = self[surface] = Copies()
        return copies


class State:
    """Holdings by surface and endpoint (``held[surface][endpoint]``), for one contract."""

    __slots__ = ("_outputs", "held", "ob")

    def __init__(self, ob: Obligations) -> None:
        self.ob = ob
        self.held = Surfaces({VALUE: Values(ob)})
        self._outputs = {ob.projected.name: ob.projected.output} if ob.projected else {}

    def output_of(self, projection: str) -> str:
        """The surface that a projection adds; one that is not registered adds its own."""
        return self._outputs.get(projection) or f"{projection}()"

    def holds_anything(self, endpoint: str) -> bool:
        """Whether any surface at all is held."""
        return any(at[endpoint] is not None for at in self.held.values())

    def span(self, part: Part | None) -> Span | None:
        """The elements of a slice; None for the whole, and for a slice that is the whole."""
        if part is None or part.of == 1:
            return None
        return slice_bounds(self.ob.elements, part.index, part.of)

    def deliver(self, dst: str, surface: str, span: Span | None, sent: Holding) -> None:
        """Add what ``sent`` has of ``span`` to ``dst``; what it has already stays as it is."""
        at = self.held[surface]
        held = at[dst]
        if span is None and sent.pieces is WHOLE:
            if held is None or held.pieces is not WHOLE:
                at[dst] = sent
            return
        fresh = held is None
        if held is None:
            held = at[dst] = Holding(sent.complete, set(sent.sources), set(sent.issuers), [])
        for piece in sent.pieces if span is None else (span,):
            if fresh or not overlaps(held, piece):
                held.add(piece, sent)
        if held.size == self.ob.elements:
            at[dst] = Holding(held.complete, self.interned(held.sources), held.issuers)

    def interned(self, sources: AbstractSet[str]) -> AbstractSet[str]:
        """One object for R's source set, so that comparing with it is cheap."""
        return self.ob.reduced if self.ob.reduced and sources == self.ob.reduced else sources
