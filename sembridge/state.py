"""The checker's state (semantics of §3.3): who holds which surface, how much, from whom.

A holding is ⟨parts, complete, sources, issuers⟩ over (endpoint, surface). Producers' own values
appear when first read, so a state grows with the ops, not with the contract.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from sembridge.guards import inside
from sembridge.layout import slice_bounds
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, Part
from sembridge.surfaces import PARAMETERS
from sembridge.verdict import Violation

if TYPE_CHECKING:
    from sembridge.rules import Rule

Span = tuple[int, int]
"""Start and stop of a run of elements of the flattened value."""

ALL: tuple[None] = (None,)
_IS_WHOLE = attrgetter("whole")
NOBODY = frozenset[str]()

NO_ELEMENTS: tuple[Span] = ((0, 0),)
"""The slice that a holding without elements delivers."""


class Holding(Struct, gc=False):
    """What one endpoint has of one surface.

    ``sources`` is provenance, ``issuers`` authority. A holding that is ``whole`` never changes,
    so endpoints may share it; otherwise ``pieces`` are its slices in order, ``size`` elements.
    """

    complete: bool
    sources: AbstractSet[str]
    issuers: AbstractSet[str]
    whole: bool = True
    pieces: list[Span] = []
    size: int = 0

    def add(self, piece: Span, sent: Holding) -> None:
        """Take over a slice that is not here yet; only an incomplete holding may change."""
        if piece[0] < piece[1]:
            insort(self.pieces, piece)
            self.size += piece[1] - piece[0]
            self.complete &= sent.complete
        self.sources = self.sources | sent.sources
        self.issuers = self.issuers | sent.issuers

    @property
    def spans(self) -> Sequence[Span | None]:
        """What a broadcast of this holding delivers; None stands for the whole."""
        return ALL if self.whole else self.pieces

    def covers(self, span: Span | None) -> bool:
        """Whether every element of ``span`` is here (None: of the whole)."""
        if self.whole:
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
    if held.whole or span is None or span[0] == span[1]:
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
        pieces.extend([(0, elements)] if h.whole else h.pieces)
    pieces.sort()
    reached = 0
    for start, stop in pieces:
        if start == stop:
            continue
        if start != reached:
            return False
        reached = stop
    return reached == elements


Copies = dict[str, Holding]
"""Who holds one surface."""


class State:
    """Holdings by surface and endpoint (``held[surface][endpoint]``), and what was found wrong.

    Initially each producer holds its own value, and each consumer the projection's parameters
    where it has some; availability only grows. ``rules`` are the ids
    of the rules in force (None: all of them); ``op`` is the index that violations carry.
    """

    __slots__ = ("domain_of", "found", "held", "ob", "op", "producers", "rules", "values")

    def __init__(self, ob: Obligations, rules: frozenset[str] | None = None) -> None:
        self.ob, self.domain_of, self.rules = ob, ob.domain_of, rules
        self.producers = ob.producer_set.keys()
        self.values: Copies = {}
        self.held: dict[str, Copies] = {VALUE: self.values}
        if ob.projected is not None:
            self.held[ob.projected.output] = {}
            if PARAMETERS in ob.sizes:
                self.held[PARAMETERS] = dict.fromkeys(ob.informed, Holding(True, NOBODY, NOBODY))
        self.op: int | None = None
        self.found: list[Violation] = []

    def fork(self) -> State:
        """A state that goes on by itself; whole holdings never change, and are shared."""
        other = State(self.ob, self.rules)
        held = other.held = {surface: at.copy() for surface, at in self.held.items()}
        other.values = held[VALUE]
        for at in held.values():
            if not all(map(_IS_WHOLE, at.values())):
                at |= {x: replace(h, pieces=[*h.pieces]) for x, h in at.items() if not h.whole}
        return other

    def own(self, at: Copies, endpoint: str) -> Holding | None:
        """A producer's own value, which appears when it is first looked at."""
        if at is not self.values or endpoint not in self.producers:
            return None
        itself = frozenset((endpoint,))
        held = at[endpoint] = Holding(not self.ob.partial, itself, itself)
        return held

    def fail(self, rule: Rule, endpoint: str | None, message: str) -> None:
        """Record a violation, where the rule is in force."""
        if self.rules is None or rule.id in self.rules:
            self.found.append(
                Violation(rule=rule.name, op=self.op, endpoint=endpoint, message=message)
            )

    def strangers(self, rule: Rule, *ids: str) -> None:
        """Fail for each id that is no endpoint, or once where an op names nobody."""
        unknown = [x for x in dict.fromkeys(ids) if x not in self.domain_of]
        for x in unknown:
            self.fail(rule, x, "no endpoint of the contract")
        if not unknown:
            self.fail(rule, None, "names no receiver")

    def one_domain(self, rule: Rule, home: str, ids: Sequence[str]) -> None:
        """Fail for each endpoint that a native collective of ``home`` does not reach."""
        domain_of = self.domain_of
        outside = [d for d in {domain_of[x] for x in ids} if not inside(d, home)]
        for x in ids if outside else ():
            if domain_of[x] in outside:
                self.fail(rule, x, f"a native collective of {home!r} reaches into {domain_of[x]!r}")

    def twice(self, rule: Rule, ids: Sequence[str], surface: str) -> None:
        """Fail for each id that stands in ``ids`` again."""
        seen = set[str]()
        for x in ids:
            if x in seen:
                self.fail(rule, x, f"is given {surface} twice")
            seen.add(x)

    def copies(self, surface: str) -> Copies:
        """Who holds ``surface``; a name that the contract does not know has no copies yet."""
        at = self.held.get(surface)
        if at is None:
            at = self.held[surface] = {}
        return at

    def holds_anything(self, endpoint: str) -> bool:
        """Whether anything that a producer has made is held."""
        held = self.held.items()
        return any(endpoint in at for surface, at in held if surface != PARAMETERS)

    def span(self, part: Part | None) -> Span | None:
        """The elements of a slice; None for the whole, and for a slice that is the whole."""
        if part is None or part.of == 1:
            return None
        return slice_bounds(self.ob.elements, part.index, part.of)

    def deliver(self, dst: str, surface: str, span: Span | None, sent: Holding) -> None:
        """Add what ``sent`` has of ``span`` to ``dst``; what it has already stays as it is."""
        at = self.copies(surface)
        held = at.get(dst) or self.own(at, dst)
        if span is None and sent.whole:
            if held is None or not held.whole:
                at[dst] = sent
            return
        fresh = held is None
        if held is None:
            held = at[dst] = Holding(True, sent.sources, sent.issuers, False, [])
        for piece in sent.pieces if span is None else (span,):
            if fresh or not overlaps(held, piece):
                held.add(piece, sent)
        if held.size == self.ob.elements:
            at[dst] = Holding(held.complete, self.interned(held.sources), held.issuers)

    def interned(self, sources: AbstractSet[str]) -> AbstractSet[str]:
        """One object for R's source set, so that comparing with it is cheap."""
        return self.ob.reduced if self.ob.reduced and sources == self.ob.reduced else sources
