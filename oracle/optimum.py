"""Counts, Pareto frontier and optimum of the bounded family, without listing its programs.

Availability only grows and footprints add up, so what a program can still do depends on how many
consumers are unserved where, and on how many endpoints hold what. Two things keep that small:

- endpoints of one domain that may stand for one another are counted, not named;
- values of two lineages never meet, and a whole assembled from several lanes is a lineage of its
  own. So once it is said which consumers each lineage serves, the lineages' programs are
  independent: counts multiply, sequences interleave, frontiers add up.

The listing (:mod:`oracle.enumerate`) reads the same family endpoint by endpoint, with the checker
as its judge; tests hold the two equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice, product
from math import comb, prod
from typing import NamedTuple

from oracle.program import check_steps, lineage_of, remote_lanes, surfaces_sent
from sembridge.errors import SemBridgeError
from sembridge.footprint import Footprint
from sembridge.obligations import Obligations

Cost = tuple[int, int, int, int, int, int]
"""A footprint in the order of equation 5."""

FREE: Cost = (0, 0, 0, 0, 0, 0)
ELSEWHERE = -1
"""Any domain without a demanded consumer: in which of them a producer sits changes nothing."""


class Kind(NamedTuple):
    """``demanded`` interchangeable consumers of one domain.

    ``lanes`` where one materialization may serve them, all at once.
    """

    domain: int
    demanded: int
    lanes: bool


class Part(NamedTuple):
    """One lineage's consumers and producers, without names and sizes.

    ``producers`` are (domain, how many); ``projects`` says whether every consumer needs a
    projection's output, ``tokens_travel`` whether that may serve it in the value's stead.
    """

    kinds: tuple[Kind, ...]
    producers: tuple[tuple[int, int], ...]
    projects: bool
    tokens_travel: bool


class Sizes(NamedTuple):
    """Bytes of one value and of its projected result (0 where there is none)."""

    value: int
    tokens: int


class Figures(NamedTuple):
    """What the oracle says of a contract; ``pareto`` is in lexicographic order.

    ``sequences`` counts op sequences that the checker accepts, ``programs`` the same up to order.
    ``states`` is the size of the dynamic program.
    """

    sequences: int
    programs: int
    pareto: tuple[Footprint, ...]
    states: int

    @property
    def optimum(self) -> Footprint:
        """The lexicographic minimum, which is always on the frontier."""
        return self.pareto[0]


class BudgetEnded(SemBridgeError):
    """The dynamic program grew past the states that it was given (exit 3)."""

    code = "budget-ended"
    exit_code = 3


MAX_STATES = 2_000_000


def figures(ob: Obligations, *, max_states: int = MAX_STATES) -> Figures:
    """The figures of valid obligations of any size; time depends on kinds, not on names.

    Raises:
        BudgetEnded: one lineage's dynamic program has more than ``max_states`` states, or its
            consumers may be divided among lineages in more ways than that.
        BadInput: the contract needs steps that the family does not have.
    """
    check_steps(ob)
    sizes = Sizes(ob.value_bytes, ob.sizes[ob.projected.output] if ob.projected else 0)
    reduced = len(ob.reduced) if ob.reduced is not None else 0
    reduction = (0, 0, (reduced - 1) * ob.value_bytes, 0, 1, 1) if reduced else FREE
    divided = tuple(islice(divisions(ob), max_states))
    if len(divided) == max_states:
        raise BudgetEnded(f"over {max_states} ways to divide consumers among lineages")
    return _figures(divided, sizes, reduction, max_states)


Division = tuple[int, tuple["Part", ...]]
"""In how many ways consumers may be divided so among lineages, and what each lineage serves."""


@lru_cache(maxsize=1 << 16)
def _figures(
    divided: tuple[Division, ...], sizes: Sizes, reduction: Cost, max_states: int
) -> Figures:
    sequences = programs = 0
    points, seen = set[Cost](), set[Part]()
    for ways, parts in divided:
        lengths, together, front = {0: ways}, ways, [reduction]
        for part in parts:
            counts = count(part, max_states)
            lengths = interleaved(lengths, counts.sequences)
            together *= counts.programs
            front = pareto({_plus(p, q) for p, q in product(front, frontier(part, sizes))})
        sequences += sum(lengths.values())
        programs += together
        points.update(front)
        seen.update(parts)
    return Figures(
        sequences=sequences,
        programs=programs,
        pareto=tuple([as_footprint(point) for point in pareto(points)]),
        states=sum([count(part, max_states).states for part in seen]),
    )


def interleaved(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    """Interleavings of two independent sets of sequences, each counted by number of steps.

    >>> interleaved({1: 1}, {2: 1})
    {3: 3}
    """
    merged: dict[int, int] = {}
    for (a, m), (b, n) in product(one.items(), other.items()):
        merged[a + b] = merged.get(a + b, 0) + m * n * comb(a + b, a)
    return merged


def pareto(points: Iterable[Cost]) -> list[Cost]:
    """The points that no other dominates, in lexicographic order."""
    kept: list[Cost] = []
    # A point is dominated only by one that comes before it in lexicographic order.
    for point in sorted(points):
        _, b, c, d, e, f = point
        for k in kept:
            if k[1] <= b and k[2] <= c and k[3] <= d and k[4] <= e and k[5] <= f:
                break
        else:
            kept.append(point)
    return kept


def as_footprint(cost: Cost) -> Footprint:
    """A cost as the kit's footprint."""
    return Footprint(
        cross_bytes=cost[0],
        cross_startups=cost[1],
        local_bytes=cost[2],
        local_startups=cost[3],
        reductions=cost[4],
        ops=cost[5],
    )


def _plus(a: Cost, b: Cost) -> Cost:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5])


# From a contract to independent parts ----------------------------------------------------------

Lineage = frozenset[str]


def divisions(ob: Obligations) -> Iterator[Division]:
    """Which consumers an assembled whole serves, and which their own lineages.

    There is one division where nothing can be assembled from several lineages.
    """
    demanded = Counter([(ob.domain_of[c], lineage_of(ob, c)) for c in ob.demanded])
    lanes = {
        domain: Counter([lineage_of(ob, c) for c in members])
        for domain, members in remote_lanes(ob).items()
    }
    mixed = {domain for domain, members in lanes.items() if len(members) > 1}
    kinds = sorted(demanded, key=lambda kind: (kind[0], sorted(kind[1])))
    for taken in product(*[range(demanded[k] + 1 if mixed else 1) for k in kinds]):
        assembled = dict(zip(kinds, taken, strict=True))
        if any(taken) and not any(_covers(assembled, d, lanes[d]) for d in mixed):
            continue
        own = Counter({kind: demanded[kind] - n for kind, n in assembled.items()})
        parts = [
            _own_part(ob, lineage, own, lanes, demanded)
            for lineage in dict.fromkeys([lineage for _, lineage in kinds])
        ]
        if any(taken):
            parts.append(_assembled_part(ob, assembled, {d: lanes[d] for d in mixed}))
        yield prod([comb(demanded[k], n) for k, n in assembled.items()]), tuple(sorted(parts))


def _covers(served: dict[tuple[str, Lineage], int], domain: str, lanes: Counter[Lineage]) -> bool:
    return all(served.get((domain, lineage), 0) == n for lineage, n in lanes.items())


def _part(ob: Obligations, kinds: list[tuple[str, int, bool, int]]) -> Part:
    """A part from (domain, demanded, lanes, producers there); domains are numbered by size."""
    homes: dict[str, list[tuple[int, bool, int]]] = {}
    for domain, demanded, lanes, producers in kinds:
        homes.setdefault(domain, []).append((demanded, lanes, producers))
    ordered = sorted([(sorted(rows), domain) for domain, rows in homes.items() if domain])
    elsewhere = sum([producers for *_, producers in homes.get("", [])])
    native = [(i, sum([row[2] for row in rows])) for i, (rows, _) in enumerate(ordered)]
    return Part(
        kinds=tuple(
            [Kind(i, n, lanes) for i, (rows, _) in enumerate(ordered) for n, lanes, _ in rows]
        ),
        producers=tuple([(d, n) for d, n in ((ELSEWHERE, elsewhere), *native) if n]),
        projects=ob.projected is not None,
        tokens_travel=len(surfaces_sent(ob)) > 1,
    )


def _own_part(
    ob: Obligations,
    lineage: Lineage,
    served: Counter[tuple[str, Lineage]],
    lanes: dict[str, Counter[Lineage]],
    demanded: Counter[tuple[str, Lineage]],
) -> Part:
    """What the producers of one lineage do for ``served``; their domains' lanes may be alike."""
    producers = Counter([ob.domain_of[p] for p in lineage])
    rows: list[tuple[str, int, bool, int]] = []
    for (domain, theirs), n in served.items():
        if n and theirs == lineage:
            alone = domain in lanes and set(lanes[domain]) == {lineage}
            whole = alone and n == demanded[domain, lineage]
            rows.append((domain, n, whole, producers.pop(domain, 0)))
    return _part(ob, [*rows, ("", 0, False, sum(producers.values()))])


def _assembled_part(
    ob: Obligations,
    assembled: dict[tuple[str, Lineage], int],
    lanes: dict[str, Counter[Lineage]],
) -> Part:
    """What starts from one or more assemblies and serves ``assembled``."""
    rows: list[tuple[str, int, bool, int]] = []
    for domain in {domain for domain, _ in assembled}:
        n = sum([m for (d, _), m in assembled.items() if d == domain])
        if domain in lanes and _covers(assembled, domain, lanes[domain]):
            m = sum(lanes[domain].values())
            rows.append((domain, m, True, 0))
            n -= m
        if n:
            rows.append((domain, n, False, 0))
    return _part(ob, rows)


# One step at a time: sequences -----------------------------------------------------------------


class Cell(NamedTuple):
    """Endpoints of one domain that hold the same and must do the same.

    ``owes`` is what each must still do: ``project`` the value it was served, ``send`` tokens it
    projected as a producer. ``may_project`` marks a producer that may project before it sends.
    """

    domain: int
    value: bool
    tokens: bool = False
    owes: str = ""
    may_project: bool = False


class State(NamedTuple):
    """Unserved consumers by kind, and how many endpoints of each cell there are."""

    unserved: tuple[int, ...]
    holders: tuple[tuple[Cell, int], ...]

    @property
    def finished(self) -> bool:
        """Nobody is unserved and nothing is owed."""
        return not self.holders and not any(self.unserved)


class Counts(NamedTuple):
    """How many sequences there are, by their number of steps, and how many programs."""

    sequences: dict[int, int]
    programs: int
    states: int


@lru_cache(maxsize=1 << 16)
def count(part: Part, max_states: int = MAX_STATES) -> Counts:
    """Count a part's sequences step by step, and its programs holder by holder."""

    @cache
    def sequences(state: State) -> dict[int, int]:
        if state.finished:
            return {0: 1}
        if sequences.cache_info().currsize > max_states:
            raise BudgetEnded(f"over {max_states} states")
        counts = Counter[int]()
        for ways, after in steps(part, state):
            for length, n in sequences(after).items():
                counts[length + 1] += ways * n
        return counts

    @cache
    def programs(state: State) -> int:
        if not state.holders:
            return state.finished
        return sum([ways * programs(after) for ways, _, after in forwardings(part, state)])

    return Counts(
        sequences=sequences(_start(part)),
        programs=sum([programs(state) for _, state in _after_assemblies(part)]),
        states=sequences.cache_info().currsize,
    )


def steps(part: Part, state: State) -> Iterator[tuple[int, State]]:
    """What ``state`` allows: how many steps differ in names alone, and what they lead to."""
    unserved = state.unserved
    for i, kind in enumerate(part.kinds):
        if kind.lanes and unserved[i] == kind.demanded:
            yield 1, _assembled(part, state, i)
    for cell, n in state.holders:
        if cell.may_project:
            projected = cell._replace(tokens=True, owes="send", may_project=False)
            yield n, _next(state, unserved, {cell: -1, projected: 1})
        if cell.owes == "project":
            yield n, _next(state, unserved, {cell: -1, _projected(part, cell): 1})
        for tokens in _sendable(cell):
            for i, left in enumerate(unserved):
                if left and part.kinds[i].domain != cell.domain:
                    one = tuple([int(j == i) for j in range(len(unserved))])
                    yield n * left, _served(part, state, cell, tokens, one)
            at_home = [
                range(left + 1 if kind.domain == cell.domain else 1)
                for left, kind in zip(unserved, part.kinds, strict=True)
            ]
            for chosen in product(*at_home):
                if any(chosen):
                    ways = n * prod(map(comb, unserved, chosen))
                    yield ways, _served(part, state, cell, tokens, chosen)


def _start(part: Part) -> State:
    unserved = tuple([kind.demanded for kind in part.kinds])
    if not any(unserved):
        return State(unserved, ())
    producers = [
        (Cell(domain, value=True, may_project=part.tokens_travel), n)
        for domain, n in part.producers
    ]
    return State(unserved, tuple(producers))


def _sendable(cell: Cell) -> list[bool]:
    """What a holder can send: the value (False), tokens (True)."""
    return [tokens for tokens, held in ((False, cell.value), (True, cell.tokens)) if held]


def _projected(part: Part, cell: Cell) -> Cell:
    """A served consumer once it projected; its tokens matter where they can be sent."""
    return cell._replace(tokens=part.tokens_travel, owes="")


def _receiver(part: Part, domain: int, tokens: bool) -> Cell:
    return Cell(domain, not tokens, tokens, "project" if part.projects and not tokens else "")


def _served(part: Part, state: State, src: Cell, tokens: bool, chosen: tuple[int, ...]) -> State:
    """After ``src`` serves ``chosen`` consumers of each kind, the value or its tokens."""
    changes = dict[Cell, int]()
    for kind, n in zip(part.kinds, chosen, strict=True):
        if n:
            receiver = _receiver(part, kind.domain, tokens)
            changes[receiver] = changes.get(receiver, 0) + n
    if tokens and src.owes == "send":
        done = src._replace(owes="")
        changes[src] = changes.get(src, 0) - 1
        changes[done] = changes.get(done, 0) + 1
    left = tuple([u - n for u, n in zip(state.unserved, chosen, strict=True)])
    return _next(state, left, changes)


def _assembled(part: Part, state: State, kind: int) -> State:
    """After one materialization served all lanes of ``kind``."""
    left = tuple([0 if i == kind else n for i, n in enumerate(state.unserved)])
    receiver = _receiver(part, part.kinds[kind].domain, tokens=False)
    return _next(state, left, {receiver: part.kinds[kind].demanded})


def _next(state: State, unserved: tuple[int, ...], changes: dict[Cell, int]) -> State:
    """The state after ``changes``; once all are served, only what still owes something."""
    counts = dict(state.holders)
    for cell, n in changes.items():
        counts[cell] = counts.get(cell, 0) + n
    waiting = any(unserved)
    left = [(cell, n) for cell, n in counts.items() if n and (waiting or cell.owes)]
    return State(unserved, tuple(sorted(left)))


# One holder at a time: programs and footprints -------------------------------------------------


class Spent(NamedTuple):
    """What steps cost, before sizes are known: values and tokens sent and delivered locally."""

    values_sent: int = 0
    tokens_sent: int = 0
    values_local: int = 0
    tokens_local: int = 0
    startups: int = 0
    local_startups: int = 0
    ops: int = 0

    def priced(self, sizes: Sizes) -> Cost:
        """The footprint, once sizes are known."""
        return (
            self.values_sent * sizes.value + self.tokens_sent * sizes.tokens,
            self.startups,
            self.values_local * sizes.value + self.tokens_local * sizes.tokens,
            self.local_startups,
            0,
            self.ops,
        )


def _sum(a: Spent, b: Spent) -> Spent:
    return Spent(*[x + y for x, y in zip(a, b, strict=True)])


@lru_cache(maxsize=1 << 16)
def frontier(part: Part, sizes: Sizes) -> list[Cost]:
    """The Pareto frontier of a part's programs, in lexicographic order."""

    @cache
    def ahead(state: State) -> list[Cost]:
        if not state.holders:
            return [FREE] if state.finished else []
        points = set[Cost]()
        for _, spent, after in forwardings(part, state):
            cost = spent.priced(sizes)
            points.update([_plus(cost, rest) for rest in ahead(after)])
        return pareto(points)

    return pareto(
        {
            _plus(spent.priced(sizes), rest)
            for spent, state in _after_assemblies(part)
            for rest in ahead(state)
        }
    )


def forwardings(part: Part, state: State) -> Iterator[tuple[int, Spent, State]]:
    """All that the first holder may do in the whole of a program, and then no more.

    Each consumer is served by one holder, so taking the holders in any fixed order and giving
    each its receivers at once makes every program exactly once, whatever the order of its ops.
    Programs that differ in how a holder splits its broadcasts come together, at the cost of the
    one that does not split them: no other can be on the frontier.
    """
    (cell, n), *others = state.holders
    rest = State(state.unserved, ((cell, n - 1), *others) if n > 1 else tuple(others))
    if cell.owes == "project":
        cell, paid = _projected(part, cell), Spent(ops=1)
    else:
        paid = Spent()
    yield from _sent_out(part, rest, cell, paid, _sendable(cell))
    if cell.may_project:
        cell = cell._replace(tokens=True)
        for ways, spent, after in _sent_out(part, rest, cell, Spent(ops=1), [True]):
            if spent.ops > 1:
                for more, all_spent, last in _sent_out(part, after, cell, spent, [False]):
                    yield ways * more, all_spent, last


def _sent_out(
    part: Part, state: State, cell: Cell, paid: Spent, surfaces: list[bool]
) -> Iterator[tuple[int, Spent, State]]:
    """Ways to serve some of the unserved from ``cell``: single sends away, broadcasts at home."""
    if not surfaces:
        yield 1, paid, state
        return
    tokens, *later = surfaces
    for chosen in product(*[range(left + 1) for left in state.unserved]):
        pairs = list(zip(part.kinds, chosen, strict=True))
        home = sum([n for kind, n in pairs if kind.domain == cell.domain])
        away = sum(chosen) - home
        ways = prod(map(comb, state.unserved, chosen)) * bell(home)
        spent = Spent(
            values_sent=0 if tokens else away,
            tokens_sent=away if tokens else 0,
            values_local=0 if tokens else home,
            tokens_local=home if tokens else 0,
            startups=away,
            local_startups=int(home > 0),
            ops=away + (home > 0),
        )
        after = _served(part, state, cell, tokens, chosen)
        for more, all_spent, last in _sent_out(part, after, cell, _sum(paid, spent), later):
            yield ways * more, all_spent, last


@cache
def bell(n: int) -> int:
    """Partitions of n receivers into broadcasts.

    >>> [bell(n) for n in range(6)]
    [1, 1, 2, 5, 15, 52]
    """
    return 1 if n == 0 else sum([comb(n - 1, k) * bell(k) for k in range(n)])


def _after_assemblies(part: Part) -> Iterator[tuple[Spent, State]]:
    """The start with each choice of domains that materialize, and what that costs.

    m slices make up one value; in the gather each of m members lacks all but its slice.
    """
    eligible = [i for i, kind in enumerate(part.kinds) if kind.lanes]
    for chosen in product((False, True), repeat=len(eligible)):
        spent, state = Spent(), _start(part)
        for takes, i in zip(chosen, eligible, strict=True):
            if takes:
                m = part.kinds[i].demanded
                cost = Spent(1, 0, m - 1, 0, startups=m, local_startups=1, ops=m + 1)
                spent, state = _sum(spent, cost), _assembled(part, state, i)
        yield spent, state
