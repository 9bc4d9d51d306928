"""A plan as a formula over values: what each op needs, and what each demanded consumer observes.

Producers' tensors are free integers, one for each cell; a cell is a run of elements that no
slice of the plan cuts, so the formula does not grow with the tensor. The contract's facts are
named assumptions, and whatever no fact settles is free: an adversary picks it. The plan is legal
exactly when no choice breaks a condition.

============== =====================================================================
fact           what it settles
============== =====================================================================
placement      ``complete`` (no reduction outstanding), ``replicated``
replica_classes ``class_p`` of its members, and that their cells are equal
reduction      ``outstanding``, ``operator``, ``summand_p`` of every producer
owner          ``authority`` (somebody must issue), ``owner_p`` of every producer
surface        ``registered`` (the projection), ``wants_value``
combine        of a projection of shards: as reduction, ``completes`` being its surface
demand         ``demanded_c`` of every consumer
domains        ``domain_x`` of every endpoint
============== =====================================================================

A projection is an uninterpreted function of every cell; a reduction is integer arithmetic, and
the combine of shards an uninterpreted function of the set of their records. As
its value the reference gives a mapped producer's (an owner's; R's reduction). Under a
``replicate`` placement a whole of several producers' slices is admissible where each cell is
that cell of one of them: the layout authorizes reassembly, and not that producers are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from oracle.smt.solver import Script
from sembridge.layout import slice_bounds
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
    endpoints_of,
)
from sembridge.surfaces import PARAMETERS

LOGIC = "QF_UFLIA"

MAX_TERMS = 50_000
"""Bound on the formula's size, estimated before it is built."""


class TooLarge(Exception):
    """The formula would pass ``MAX_TERMS``."""


class Condition(Struct, frozen=True, kw_only=True):
    """What must hold: the rule it belongs to, the op and endpoint to blame, the formula.

    ``value_of`` is the surface whose value the condition is about, where it is about one.
    """

    rule: str
    op: int | None = None
    endpoint: str | None = None
    says: str
    formula: str
    value_of: str | None = None


class Model(Struct, frozen=True, kw_only=True):
    """The conditions of a plan, and a script whose claim is that one of them is broken.

    The script's constant ``ok_i`` is condition i's truth, ``tensors`` names the constants of a
    producer's value, one for each of ``spans``.
    """

    conditions: tuple[Condition, ...]
    script: Script
    spans: tuple[tuple[int, int], ...]
    tensors: Mapping[str, tuple[str, ...]]


class Held(Struct, kw_only=True):
    """What an endpoint has of a surface: terms by cell, and who it comes from.

    ``argument`` is, for a projected result, the cells of the value that it was projected from.
    """

    cells: dict[int, str]
    complete: str
    sources: frozenset[str]
    issuers: frozenset[str]
    argument: tuple[str, ...] = ()


def conj(terms: Iterable[str]) -> str:
    """Conjunction, without the trivial members."""
    kept = [t for t in terms if t != "true"]
    if len(kept) > 1:
        return f"(and {' '.join(kept)})"
    return kept[0] if kept else "true"


def disj(terms: Iterable[str]) -> str:
    """Disjunction; false of nothing."""
    kept = list(terms)
    if len(kept) > 1:
        return f"(or {' '.join(kept)})"
    return kept[0] if kept else "false"


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _equal(left: Sequence[str], right: Sequence[str]) -> str:
    return conj([f"(= {a} {b})" for a, b in zip(left, right, strict=True) if a != b])


COMBINE = {
    "sum": "(+ {a} {b})",
    "product": "(+ {a} {b})",
    "minimum": "(ite (<= {a} {b}) {a} {b})",
    "maximum": "(ite (>= {a} {b}) {a} {b})",
}
"""Reduction operators over integers, two at a time.

Under a contract that registers a product the integers are exponents of two. Nothing but products
is made of the values then, and two products of variables are equal for all numbers exactly where
they are for all powers of two: the question stays linear.
"""


def cells_of(elements: int, plan: Plan) -> list[tuple[int, int]]:
    """The runs of elements that no slice of the plan cuts, in order.

    >>> cells_of(10, Plan(contract="e", ops=()))
    [(0, 10)]
    """
    cuts = {0, elements}
    for op in plan.ops:
        if isinstance(op, Send) and op.part is not None and op.part.index < op.part.of:
            cuts.update(slice_bounds(elements, op.part.index, op.part.of))
    ordered = sorted(cuts)
    return list(pairwise(ordered))


def encode(ob: Obligations, plan: Plan) -> Model:
    """The model of ``plan`` under obligations that passed validation.

    Raises:
        TooLarge: the formula would be too large to build.
    """
    return _Encoder(ob, plan).model()


Need = Callable[[str, str, "str | bool"], None]
"""States a condition of one observation: its rule, what it says, its formula."""


class _Encoder:
    """One pass over a plan; the holdings are known, their values are terms."""

    def __init__(self, ob: Obligations, plan: Plan) -> None:
        self.ob, self.plan = ob, plan
        self.spans = cells_of(ob.elements, plan)
        self.cells = range(len(self.spans))
        named = sum([len(endpoints_of(op)) for op in plan.ops])
        size = (1 + len(self.spans)) * (named + 2 * len(ob.consumers) + len(ob.producers))
        size += sum([len(op.sources) * len(op.targets) for op in plan.ops if type(op) is Reduce])
        if size > MAX_TERMS:
            raise TooLarge(f"about {size} terms, more than {MAX_TERMS}")
        self.informed = frozenset(ob.informed if PARAMETERS in ob.sizes else ())
        self.number = {x: i for i, x in enumerate(ob.domain_of)}
        self.names: dict[str, int] = {}
        self.constants: dict[str, str] = {}
        self.lines: list[str] = []
        self.held: dict[tuple[str, str], Held] = {}
        self.reached: set[str] = set()
        self.conditions: list[Condition] = []
        self.valued: set[str] = set()
        self.reductions: dict[tuple[Any, ...], list[str]] = {}

    # Terms ------------------------------------------------------------------------------------

    def constant(self, name: str, sort: str = "Bool") -> str:
        self.constants[name] = sort
        return name

    def code(self, name: str) -> str:
        """Operators, projections and domains are numbers; equal names, equal numbers."""
        return str(self.names.setdefault(name, len(self.names)))

    def define(self, term: str) -> str:
        name = self.constant(f"t{len(self.lines)}", "Int")
        self.lines.append(f"(assert (= {name} {term}))")
        return name

    def tensor(self, producer: str) -> list[str]:
        """The cells of a producer's own value."""
        self.valued.add(producer)
        j = self.number[producer]
        return [self.constant(f"v{j}_{k}", "Int") for k in self.cells]

    def reduction(self, operator: str, tensors: Sequence[Sequence[str]]) -> list[str]:
        """Cell by cell, in one order, since sources are a set.

        An operator that is none of the four gives anything; so does a product among sums, or
        a sum among products.
        """
        key = (operator, *sorted([tuple(tensor) for tensor in tensors]))
        if key not in self.reductions:
            self.reductions[key] = self.reduced(operator, key[1:])
        return self.reductions[key]

    def reduced(self, operator: str, tensors: Sequence[Sequence[str]]) -> list[str]:
        mixed = (operator == "product") != (self.ob.operator == "product")
        if operator not in COMBINE or mixed or not tensors:
            n, cells = len(self.reductions), tensors[0] if tensors else self.cells
            return [self.constant(f"u{n}_{k}", "Int") for k, _ in enumerate(cells)]
        total = list(tensors[0])
        for other in tensors[1:]:
            total = [
                self.define(COMBINE[operator].format(a=a, b=b))
                for a, b in zip(total, other, strict=True)
            ]
        return total

    def projected(self, projection: str, cells: Sequence[str]) -> str:
        """The projection's result on a whole value."""
        function = f"project_{self.code(projection)}"
        if not cells:
            return self.constant(function, "Int")
        self.constants[function] = f"({' '.join(['Int'] * len(cells))}) Int"
        return f"({function} {' '.join(cells)})"

    # Holdings ---------------------------------------------------------------------------------

    def at(self, x: str, surface: str) -> Held | None:
        found = self.held.get((x, surface))
        if found is None and surface == PARAMETERS and x in self.informed:
            known, nobody = self.constant("parameters", "Int"), frozenset[str]()
            cells = dict.fromkeys(range(self.width(surface)), known)
            found = Held(cells=cells, complete="true", sources=nobody, issuers=nobody)
            self.held[x, surface] = found
        if found is None and surface == VALUE and x in self.ob.producer_set:
            itself = frozenset((x,))
            found = self.held[x, surface] = Held(
                cells=dict(enumerate(self.tensor(x))),
                complete=self.constant("complete"),
                sources=itself,
                issuers=itself,
            )
        return found

    def width(self, surface: str) -> int:
        """How many cells make the whole: a projected result has one, of an empty value none."""
        return len(self.spans) if surface == VALUE else min(1, len(self.spans))

    def whole(self, held: Held, surface: str) -> bool:
        return len(held.cells) == self.width(surface)

    def cells_in(self, part: Part | None) -> range:
        if part is None:
            return self.cells
        start, stop = slice_bounds(self.ob.elements, part.index, part.of)
        inside = [k for k, (a, b) in enumerate(self.spans) if start <= a and b <= stop]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    def repeats(self, x: str, surface: str, cells: Iterable[int]) -> bool:
        """Whether a delivery brings what is there; one that brings nothing repeats it, too."""
        held = self.at(x, surface)
        if held is None:
            return False
        cells = set(cells)
        return not cells or self.whole(held, surface) or bool(cells & held.cells.keys())

    def deliver(
        self, x: str, surface: str, cells: Iterable[int], sent: Held, *, entire: bool
    ) -> None:
        """Add cells; a copy in pieces is as complete as the cells that it is made of."""
        if surface != PARAMETERS:
            self.reached.add(x)
        held = self.at(x, surface)
        if held is None and entire:
            self.held[x, surface] = sent
            return
        held = held or Held(cells={}, complete="true", sources=frozenset(), issuers=frozenset())
        new = {k: sent.cells[k] for k in cells if k not in held.cells}
        if new or not held.sources:
            self.held[x, surface] = Held(
                cells={**held.cells, **new},
                complete=conj(sorted({held.complete, sent.complete if new else "true"})),
                sources=held.sources | sent.sources,
                issuers=held.issuers | sent.issuers,
                argument=held.argument or sent.argument,
            )

    # Ops --------------------------------------------------------------------------------------

    def need(
        self,
        rule: str,
        says: str,
        formula: str | bool,
        op: int | None = None,
        x: str | None = None,
        value_of: str | None = None,
    ) -> None:
        text = formula if isinstance(formula, str) else _truth(formula)
        if text != "true":
            self.conditions.append(
                Condition(rule=rule, op=op, endpoint=x, says=says, formula=text, value_of=value_of)
            )

    def domain(self, x: str) -> str:
        return self.constant(f"domain_{self.number[x]}", "Int")

    def together(self, i: int, members: Sequence[str]) -> None:
        home = self.domain(members[0])
        for x in dict.fromkeys(members):
            if self.domain(x) != home:
                formula = f"(= {self.domain(x)} {home})"
                self.need("locality", "a native collective stays in one domain", formula, i, x)

    def known(self, i: int, op: AnyOp, some: Sequence[str]) -> bool:
        strangers = [x for x in endpoints_of(op) if x not in self.number]
        for x in strangers:
            self.need("membership", "an op's endpoints are the contract's", False, i, x)
        if not some:
            self.need("membership", "an op names whom it is for", False, i, None)
        return not strangers and bool(some)

    def run(self, i: int, op: AnyOp) -> None:
        match op:
            case Send() if self.known(i, op, (op.dst,)):
                self.send(i, op)
            case Broadcast() if self.known(i, op, op.dsts):
                self.broadcast(i, op)
            case AllGather() if self.known(i, op, op.members):
                self.all_gather(i, op)
            case Project() if self.known(i, op, (op.at,)):
                self.project(i, op)
            case Reduce() if self.known(i, op, op.targets):
                self.reduce(i, op)
            case _:
                pass

    def send(self, i: int, op: Send) -> None:
        sent, part = self.at(op.src, op.surface), op.part
        src, dst = self.domain(op.src), self.domain(op.dst)
        self.need("locality", "a send crosses domains", f"(not (= {src} {dst}))", i, op.dst)
        if part is not None and op.surface != VALUE:
            self.need("availability", "only the value travels in parts", False, i, op.src)
            return
        cells: Iterable[int] = self.cells if op.surface == VALUE else range(self.width(op.surface))
        there = sent is not None
        if part is not None and part.index >= part.of:
            there = False
        elif part is not None:
            cells = self.cells_in(part)
        there = there and sent is not None and sent.cells.keys() >= set(cells)
        self.need("availability", "the sender holds what it sends", there, i, op.src)
        everything = part is None or part.of == 1
        again = self.at(op.dst, op.surface) is not None and (
            everything or self.repeats(op.dst, op.surface, cells)
        )
        self.need("redelivery", "the receiver lacks what is sent", not again, i, op.dst)
        if there and sent is not None:
            self.deliver(op.dst, op.surface, cells, sent, entire=everything)

    def broadcast(self, i: int, op: Broadcast) -> None:
        sent = self.at(op.src, op.surface)
        self.together(i, (op.src, *op.dsts))
        self.need("availability", "the root holds something", sent is not None, i, op.src)
        if sent is None:
            return
        entire = self.whole(sent, op.surface)
        for n, x in enumerate(op.dsts):
            again = x in op.dsts[:n] or (
                self.at(x, op.surface) is not None
                and (entire or self.repeats(x, op.surface, sent.cells))
            )
            self.need("redelivery", "a receiver lacks what is broadcast", not again, i, x)
        for x in dict.fromkeys(op.dsts):
            self.deliver(x, op.surface, sent.cells, sent, entire=entire)

    def all_gather(self, i: int, op: AllGather) -> None:
        self.together(i, op.members)
        found = [(x, self.at(x, op.surface)) for x in op.members]
        for x, held in found:
            if held is None:
                self.need("availability", "every member holds something", False, i, x)
        members = [held for _, held in found if held is not None]
        listed = [k for held in members for k in held.cells]
        tiles = sorted(listed) == list(range(self.width(op.surface)))
        says = "the members' parts are disjoint and make up the whole"
        self.need("availability", says, tiles, i, None)
        if not tiles or len(members) < len(found):
            return
        bring = [held for held in members if held.cells or self.whole(held, op.surface)]
        whole = Held(
            cells={k: held.cells[k] for held in members for k in held.cells},
            complete=conj(sorted({held.complete for held in bring})),
            sources=frozenset[str]().union(*[held.sources for held in members]),
            issuers=frozenset[str]().union(*[held.issuers for held in members]),
            argument=next((held.argument for held in members if held.cells), ()),
        )
        for x in op.members:
            self.held[x, op.surface] = whole

    def project(self, i: int, op: Project) -> None:
        projected, held = self.ob.projected, self.at(op.at, VALUE)
        registered = "false"
        if projected is not None:
            registered = f"(= {self.constant('registered', 'Int')} {self.code(op.projection)})"
        self.need("projection", "the projection is the registered one", registered, i, op.at)
        self.need("availability", "the value is there", held is not None, i, op.at)
        if held is None:
            return
        if projected is not None and projected.choices:
            known = self.at(op.at, PARAMETERS) is not None
            says = "the projection's parameters are there"
            self.need("availability", says, known, i, op.at)
            if not known:
                return
        whole = self.whole(held, VALUE)
        self.need("projection", "a projection reads the whole value", whole, i, op.at)
        self.need("completion", "a projection follows completion", held.complete, i, op.at)
        output = f"{op.projection}()"
        if projected is not None and op.projection == projected.name:
            output = projected.output
        again = self.at(op.at, output) is not None
        self.need("redelivery", "the result is not there yet", not again, i, op.at)
        if whole and not again:
            argument = tuple([held.cells[k] for k in self.cells])
            result = self.projected(op.projection, argument)
            combined = projected is not None and projected.combine is not None
            complete = f"(not {self.constant('outstanding')})" if combined else held.complete
            self.reached.add(op.at)
            self.held[op.at, output] = Held(
                cells=dict.fromkeys(range(self.width(output)), result),
                complete=complete,
                sources=held.sources,
                issuers=held.issuers,
                argument=argument,
            )

    def reduce(self, i: int, op: Reduce) -> None:
        self.together(i, (op.targets[0], *op.sources, *op.targets))
        surface, completes = op.surface, self.constant("completes", "Int")
        asked = f"(= {completes} {self.code(f'surface {surface}')})"
        outstanding = conj([self.constant("outstanding"), asked])
        self.need("reduction", "something is to be reduced", outstanding, i, None)
        registered = f"(= {self.constant('operator', 'Int')} {self.code(op.operator)})"
        self.need("reduction", "the operator is the registered one", registered, i, None)
        named = frozenset(op.sources)
        once = len(named) == len(op.sources) and named <= self.ob.producer_set.keys()
        exact = conj([self.summand(p, p in named) for p in self.ob.producers])
        exact = exact if once else "false"
        self.need("reduction", "the sources are the registered ones", exact, i, None)
        held = {x: self.at(x, surface) for x in named}
        there = True
        for x, h in held.items():
            whole = h is not None and self.whole(h, surface)
            there &= whole
            self.need("availability", "a source holds the whole", whole, i, x)
            if h is not None:
                self.need("reduction", "a source is incomplete", f"(not {h.complete})", i, x)
        for n, x in enumerate(op.targets):
            old = self.at(x, surface)
            lacks = "true" if old is None else f"(not {old.complete})"
            lacks = "false" if x in op.targets[:n] else lacks
            self.need("redelivery", "a target lacks the result", lacks, i, x)
        if not there:
            return
        cells = range(self.width(surface))
        values = [h for x in op.sources if (h := held[x]) is not None]
        total = self.reduction(op.operator, [[h.cells[k] for k in cells] for h in values])
        sources = frozenset[str]().union(*[h.sources for h in values])
        for x in op.targets:
            self.reached.add(x)
            self.held[x, surface] = Held(
                cells=dict(enumerate(total)),
                complete="true",
                sources=sources,
                issuers=frozenset((x,)),
            )

    def summand(self, producer: str, is_one: bool) -> str:
        name = self.constant(f"summand_{self.number[producer]}")
        return name if is_one else f"(not {name})"

    # Observation ------------------------------------------------------------------------------

    def observe(self, c: str, reference: list[str]) -> None:
        projected = self.ob.projected
        demanded = self.constant(f"demanded_{self.number[c]}")
        wants_value = self.constant("wants_value") if projected else "true"
        self.observe_surface(c, VALUE, conj([demanded, wants_value]), reference, reference)
        if projected:
            result = self.combined(projected.name, projected.output)
            if self.ob.completes == VALUE:
                result = [self.projected(projected.name, reference)] * self.width(projected.output)
            self.observe_surface(c, projected.output, demanded, result, reference)

    def combined(self, projection: str, output: str) -> list[str]:
        """The combine of every shard's record."""
        if self.ob.operator is None:
            return []
        records = [
            [self.projected(projection, self.tensor(p))] * self.width(output)
            for p in self.ob.producers
        ]
        return self.reduction(self.ob.operator, records)

    def observe_surface(
        self, c: str, surface: str, wanted: str, expected: list[str], reference: list[str]
    ) -> None:
        held = self.at(c, surface)

        def need(rule: str, says: str, formula: str | bool, value_of: str | None = None) -> None:
            text = formula if isinstance(formula, str) else _truth(formula)
            if text != "true":
                text = f"(=> {wanted} {text})"
                self.need(rule, f"{says} ({surface})", text, None, c, value_of)

        if held is None:
            rule = "surface" if c in self.reached else "coverage"
            need(rule, "a demanded consumer holds the surface asked for", False)
            return
        need("completion", "what is observed is complete", held.complete)
        whole = self.whole(held, surface)
        need("coverage", "a demanded consumer holds the whole", whole)
        several = self.ob.replicate and len(held.sources) > 1
        reassembled = "false"
        if several and self.ob.owners is None and self.ob.reduced is None:
            reassembled = self.constant("replicated")
        self.admissible(c, held, reassembled, need)
        if whole:
            cells = [held.cells[k] for k in range(self.width(surface))]
            same = _equal(cells, expected)
            if same != "true" and reassembled != "false":
                argument = held.argument if surface != VALUE else cells
                same = disj([same, conj([reassembled, self.lanes(held, argument)])])
            need(self.obligation(), "the value is the reference's", same, surface)

    def obligation(self) -> str:
        """The rule that a wrong value breaks: the obligation that the contract's facts chose."""
        if self.ob.reduced is not None:
            return "reduction"
        if self.ob.owners is not None:
            return "authority"
        return "substitution" if self.ob.replicate else "provenance"

    def lanes(self, held: Held, cells: Sequence[str]) -> str:
        """Each cell is that very cell of one of the producers it derives from."""
        if len(cells) != len(self.cells):  # of a result that was made of something else
            return "false"
        tensors = [self.tensor(p) for p in sorted(held.sources)]
        return conj(
            [
                "true" if cells[k] in own else disj([f"(= {cells[k]} {v})" for v in own])
                for k in self.cells
                for own in [[tensor[k] for tensor in tensors]]
            ]
        )

    def admissible(self, c: str, held: Held, reassembled: str, need: Need) -> None:
        """Provenance and authority; which of them is asked for is the facts' to say."""
        ob = self.ob
        if ob.owners is not None:
            issued = [self.owner(x) for x in sorted(held.issuers)]
            if ob.reduced is None:
                issued += [self.owner(p) for p in sorted(held.sources - held.issuers)]
            need("authority", "an owner issued it", conj(issued))
        if ob.reduced is not None:
            exact = [self.summand(p, p in held.sources) for p in ob.producers]
            need("provenance", "it derives from every summand", conj(exact))
        if ob.owners is None and ob.reduced is None:
            mapped = self.class_of(ob.mapped[c])
            lineage = conj(
                [
                    f"(= {self.class_of(p)} {mapped})"
                    for p in sorted(held.sources)
                    if p != ob.mapped[c]
                ]
            )
            if lineage != "true" and reassembled != "false":
                lineage = f"(or {reassembled} {lineage})"
            need(self.obligation(), "its sources may stand in for the mapped producer", lineage)

    def owner(self, x: str) -> str:
        if x not in self.ob.producer_set:
            return "false"
        return self.constant(f"owner_{self.number[x]}")

    def class_of(self, producer: str) -> str:
        return self.constant(f"class_{self.number[producer]}", "Int")

    def reference(self, c: str, reduced: list[str] | None) -> list[str]:
        if reduced is not None:
            return reduced
        if self.ob.owners is not None:
            return self.tensor(next(p for p in self.ob.producers if p in self.ob.owners))
        return self.tensor(self.ob.mapped[c])

    # The whole --------------------------------------------------------------------------------

    def facts(self) -> dict[str, tuple[str, ...]]:
        """What the contract says, about the constants that the conditions mention."""
        ob, number, used = self.ob, self.number, self.constants
        facts: dict[str, list[str]] = {}

        def fact(name: str, formulas: Iterable[str]) -> None:
            found = list(formulas)
            if found:
                facts[name] = found

        def settle(name: str, value: bool) -> list[str]:
            return [name if value else f"(not {name})"] if name in used else []

        def number_of(name: str, value: str) -> list[str]:
            return [f"(= {name} {value})"] if name in used else []

        fact(
            "placement",
            settle("complete", not ob.partial) + settle("replicated", ob.replicate),
        )
        listed: set[frozenset[str]] = set()
        for members in ob.class_of.values():
            if members in listed:
                continue
            listed.add(members)
            present = sorted(members, key=number.__getitem__)
            same: list[str] = []
            classes = [p for p in present if f"class_{number[p]}" in used]
            for p, q in pairwise(classes):
                same.append(f"(= class_{number[p]} class_{number[q]})")
            valued = [p for p in present if p in self.valued]
            for p, q in pairwise(valued):
                same += [f"(= v{number[p]}_{k} v{number[q]}_{k})" for k in self.cells]
            fact(f"replica_classes of {json.dumps(present[0])}", same)
        if ob.reduced is not None and ob.operator is not None:
            reduced = settle("outstanding", True) + number_of("operator", self.code(ob.operator))
            for p in ob.producers:
                reduced += settle(f"summand_{number[p]}", p in ob.reduced)
            reduced += number_of("completes", self.code(f"surface {ob.completes}"))
            fact("reduction" if ob.completes == VALUE else "combine", reduced)
        if ob.owners is not None:
            owned = [f for p in ob.producers for f in settle(f"owner_{number[p]}", p in ob.owners)]
            fact("owner", owned)
        if ob.projected is not None:
            wants = settle("wants_value", ob.surface.keeps_value)
            fact("surface", wants + number_of("registered", self.code(ob.projected.name)))
        wanted = set(ob.demanded)
        fact(
            "demand",
            [f for c in ob.consumers for f in settle(f"demanded_{number[c]}", c in wanted)],
        )
        fact(
            "domains",
            [
                f
                for x, domain in ob.domain_of.items()
                for f in number_of(f"domain_{number[x]}", self.code(f"domain {domain}"))
            ],
        )
        return {name: tuple(formulas) for name, formulas in facts.items()}

    def identity(self) -> None:
        ob, plan = self.ob, self.plan
        named, tagged = plan.contract == ob.contract.name, plan.tag == ob.contract.tag
        self.need("identity", "the plan names its contract", named)
        self.need("identity", "the plan carries the contract's tag", tagged)

    def model(self) -> Model:
        ob = self.ob
        self.identity()
        for i, op in enumerate(self.plan.ops):
            self.run(i, op)
        reduced = None
        if ob.reduced is not None and ob.operator is not None and ob.completes == VALUE:
            tensors = [self.tensor(p) for p in ob.producers if p in ob.reduced]
            reduced = self.reduction(ob.operator, tensors)
        for c in ob.consumers:
            self.observe(c, self.reference(c, reduced))
        facts = self.facts()
        body = [f"; {json.dumps(x)} is number {i}" for x, i in self.number.items()]
        for name, sort in self.constants.items():
            kind = "declare-fun" if sort.startswith("(") else "declare-const"
            body.append(f"({kind} {name} {sort})")
        if "outstanding" in self.constants and ob.reduced is None:
            body.append("(assert (not outstanding))")
        body += self.lines
        for i, condition in enumerate(self.conditions):
            where = json.dumps([condition.rule, condition.op, condition.endpoint])
            body.append(f"(declare-const ok_{i} Bool) ; {where}")
            body.append(f"(assert (= ok_{i} {condition.formula}))")
        claim = disj([f"(not ok_{i})" for i in range(len(self.conditions))])
        body.append(f"(assert {claim})")
        return Model(
            conditions=tuple(self.conditions),
            script=Script(logic=LOGIC, body=tuple(body), facts=facts),
            spans=tuple(self.spans),
            tensors={p: tuple(self.tensor(p)) for p in sorted(self.valued)},
        )
