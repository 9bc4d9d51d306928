"""Plans that the solver chooses: none of up to n ops is accepted and wrong; which is cheapest.

Here the ops are unknowns as well. A step is idle, or one of the five ops with any root, any
receivers, sources or members, and any piece of the value (one of ``cells`` slices, or the whole).
The checker's conditions are encoded over the state that it keeps; the values beside it are the
producers' own, free but for the contract's facts. Two questions follow:

- is there a plan that every condition accepts, and that gives a demanded consumer a value that
  is not the reference's? (``accepted_and_wrong``: for a sound checker, no.)
- which accepted plan has the least footprint? (``cheapest``: found by the solver alone, by
  asking for a smaller one until there is none.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from oracle.smt import solver
from oracle.smt.model import COMBINE, LOGIC, conj, disj
from oracle.smt.solver import Answer, Outcome, Script
from sembridge.errors import BadInput
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
)
from sembridge.surfaces import PARAMETERS

KINDS = ("idle", "send", "broadcast", "gather", "project", "reduce")

GUARDS = (
    "availability",
    "completion",
    "locality",
    "projection",
    "reduction",
    "redelivery",
    "authority",
    "provenance",
)
"""The encoded conditions by rule; leaving some out weakens the encoded checker."""


class Bounds(Struct, frozen=True, kw_only=True):
    """How far the solver may look: number of ops, and slices that the value may be cut into."""

    ops: int
    cells: int = 1
    rlimit: int = 20 * solver.RLIMIT


Cost = tuple[int, ...]
"""The footprint's six components, in the order of equation 5."""


class Found(Struct, frozen=True, kw_only=True):
    """An answer, and where there is one the plan; its cost where that was asked for."""

    answer: Answer
    plan: Plan | None = None
    cost: Cost | None = None


def accepted_and_wrong(ob: Obligations, bounds: Bounds, *, without: Iterable[str] = ()) -> Found:
    """A plan that the encoded checker (``without`` some of its conditions) accepts wrongly.

    Raises:
        BadInput: the contract combines shards, or its projection takes parameters.
    """
    steps = _Steps(ob, bounds, values=True, without=frozenset(without))
    steps.accepted()
    steps.claim(disj(steps.wrong()))
    return steps.solve()


def cheapest(ob: Obligations, bounds: Bounds) -> Found:
    """The accepted plan with the least footprint; ``SAT`` where its optimality was proved.

    ``UNKNOWN`` carries the best plan that was found before the budget of a question ended.

    Raises:
        BadInput: the contract combines shards, or its projection takes parameters.
    """
    best: Found | None = None
    while True:
        steps = _Steps(ob, bounds, values=False)
        steps.accepted()
        steps.priced()
        if best is not None and best.cost is not None:
            steps.claim(steps.cheaper_than(best.cost))
        found = steps.solve()
        if found.answer is Answer.SAT:
            best = found
        elif best is None:
            return found
        elif found.answer is Answer.UNSAT:
            return best
        else:
            return Found(answer=Answer.UNKNOWN, plan=best.plan, cost=best.cost)


def _ite(choices: Iterable[tuple[str, str]], otherwise: str) -> str:
    """The first choice whose condition holds."""
    listed = list(choices)
    text = otherwise
    for condition, value in reversed(listed):
        text = f"(ite {condition} {value} {text})"
    return text


def _sum(terms: Iterable[str]) -> str:
    return f"(+ 0 0 {' '.join(terms)})"


def _no(term: str) -> str:
    return f"(not {term})"


class _Steps:
    """The unrolled plan: one block of declarations for each step, one for each state."""

    def __init__(
        self,
        ob: Obligations,
        bounds: Bounds,
        *,
        values: bool,
        without: frozenset[str] = frozenset(),
    ) -> None:
        if ob.completes != VALUE or PARAMETERS in ob.sizes:
            raise BadInput("symbolic plans have neither combines of shards nor parameters")
        self.ob, self.bounds, self.values, self.without = ob, bounds, values, without
        self.xs = [*ob.producers, *ob.consumers]
        self.number = {x: j for j, x in enumerate(self.xs)}
        self.ps = range(len(ob.producers))
        self.all = range(len(self.xs))
        self.cells = range(min(bounds.cells, max(1, ob.elements)))
        of = len(self.cells)
        spans = [slice_bounds(ob.elements, i, of) for i in self.cells]
        self.sizes = [(b - a) * (ob.value_bytes // max(1, ob.elements)) for a, b in spans]
        self.domain = [sorted(set(ob.domain_of.values())).index(ob.domain_of[x]) for x in self.xs]
        self.body: list[str] = []
        if values:
            self.tensors()
        self.start()
        for t in range(bounds.ops):
            self.choose(t)
            self.move(t)
            self.update(t)

    # Building blocks --------------------------------------------------------------------------

    def declare(self, name: str, sort: str = "Bool") -> str:
        self.body.append(f"(declare-const {name} {sort})")
        return name

    def claim(self, formula: str) -> None:
        self.body.append(f"(assert {formula})")

    def let(self, name: str, term: str, sort: str = "Bool") -> str:
        self.declare(name, sort)
        self.claim(f"(= {name} {term})")
        return name

    def guard(self, rule: str, formula: str) -> None:
        if rule not in self.without:
            self.claim(formula)

    # State ------------------------------------------------------------------------------------

    def tensors(self) -> None:
        """Producers' own cells; those of one class are equal, and nothing else is known."""
        for p in self.ps:
            for i in self.cells:
                self.declare(f"own_{p}_{i}", "Int")
        for p, name in enumerate(self.ob.producers):
            first = min(self.number[q] for q in self.ob.members(name))
            for i in self.cells:
                if first != p:
                    self.claim(f"(= own_{p}_{i} own_{first}_{i})")
        if self.ob.projected is not None:
            sorts = " ".join(["Int"] * len(self.cells))
            self.body.append(f"(declare-fun projected ({sorts}) Int)")

    def start(self) -> None:
        complete = "false" if self.ob.partial else "true"
        for x in self.all:
            own = x in self.ps
            for i in self.cells:
                self.let(f"held_0_{x}_{i}", "true" if own else "false")
                if self.values:
                    self.let(f"value_0_{x}_{i}", f"own_{x}_{i}" if own else "0", "Int")
            self.let(f"complete_0_{x}", complete if own else "false")
            for p in self.ps:
                self.let(f"source_0_{x}_{p}", "true" if x == p else "false")
            for y in self.all:
                self.let(f"issuer_0_{x}_{y}", "true" if own and x == y else "false")
            if self.ob.projected is not None:
                self.result_state(
                    0, x, "false", ["false"] * len(self.ps), ["false"] * len(self.xs), "0"
                )

    def result_state(
        self, t: int, x: int, has: str, sources: list[str], issuers: list[str], value: str
    ) -> None:
        self.let(f"r_has_{t}_{x}", has)
        for p, term in zip(self.ps, sources, strict=True):
            self.let(f"r_source_{t}_{x}_{p}", term)
        for y, term in zip(self.all, issuers, strict=True):
            self.let(f"r_issuer_{t}_{x}_{y}", term)
        if self.values:
            self.let(f"r_value_{t}_{x}", value, "Int")

    def has(self, t: int, x: int) -> str:
        return disj([f"held_{t}_{x}_{i}" for i in self.cells])

    def whole(self, t: int, x: int) -> str:
        return conj([f"held_{t}_{x}_{i}" for i in self.cells])

    # One step ---------------------------------------------------------------------------------

    def choose(self, t: int) -> None:
        """Declare the op: its kind, root, receivers, piece and surface; and its shape."""
        for kind in KINDS:
            self.declare(f"{kind}_{t}")
        self.one_of([f"{kind}_{t}" for kind in KINDS])
        if t:
            self.claim(f"(=> idle_{t - 1} idle_{t})")
        for x in self.all:
            self.declare(f"root_{t}_{x}")
            self.declare(f"to_{t}_{x}")
        self.one_of([f"root_{t}_{x}" for x in self.all])
        to = [f"to_{t}_{x}" for x in self.all]
        self.claim(f"(=> (or send_{t} broadcast_{t} gather_{t} reduce_{t}) {disj(to)})")
        single = conj([_no(f"(and {a} {b})") for a, b in _pairs(to)])
        self.claim(f"(=> send_{t} {single})")
        self.declare(f"result_{t}")
        for i in self.cells:
            self.declare(f"piece_{t}_{i}")
        pieces = [f"piece_{t}_{i}" for i in self.cells]
        alone = [_no(f"(and {a} {b})") for a, b in _pairs(pieces)]
        self.claim(disj([conj(pieces), conj([disj(pieces), *alone])]))
        if self.ob.projected is None:
            self.claim(f"(and (not result_{t}) (not project_{t}))")
        else:
            self.claim(f"(=> result_{t} (or send_{t} broadcast_{t}))")
        for p in self.ps:
            self.declare(f"from_{t}_{p}")
        self.claim(f"(=> reduce_{t} {disj([f'from_{t}_{p}' for p in self.ps])})")

    def one_of(self, terms: list[str]) -> None:
        self.claim(disj(terms))
        for a, b in _pairs(terms):
            self.claim(_no(f"(and {a} {b})"))

    def root(self, t: int, name: str) -> list[tuple[str, str]]:
        return [(f"root_{t}_{x}", name.format(x=x)) for x in self.all]

    def move(self, t: int) -> None:
        """What the step carries: elements, values, completeness, sources, issuers."""
        for i in self.cells:
            sent = disj([f"(and {r} {h})" for r, h in self.root(t, f"held_{t}_{{x}}_{i}")])
            self.let(f"sent_{t}_{i}", sent)
            moves = f"(or (and send_{t} piece_{t}_{i}) (and broadcast_{t} sent_{t}_{i}))"
            self.let(f"moves_{t}_{i}", f"(and (not result_{t}) {moves})")
            if self.values:
                self.let(f"moved_{t}_{i}", self.moved(t, i), "Int")
        gathered = conj(
            [f"(=> (and to_{t}_{x} {self.has(t, x)}) complete_{t}_{x})" for x in self.all]
        )
        sent = _ite(self.root(t, f"complete_{t}_{{x}}"), "false")
        self.let(f"m_complete_{t}", f"(or reduce_{t} (ite gather_{t} {gathered} {sent}))")
        for p in self.ps:
            reduced = disj([f"(and from_{t}_{q} source_{t}_{q}_{p})" for q in self.ps])
            pooled = disj([f"(and to_{t}_{x} source_{t}_{x}_{p})" for x in self.all])
            sent = _ite(self.root(t, f"source_{t}_{{x}}_{p}"), "false")
            self.let(
                f"m_source_{t}_{p}", f"(ite reduce_{t} {reduced} (ite gather_{t} {pooled} {sent}))"
            )
        for y in self.all:
            pooled = disj([f"(and to_{t}_{x} issuer_{t}_{x}_{y})" for x in self.all])
            sent = _ite(self.root(t, f"issuer_{t}_{{x}}_{y}"), "false")
            self.let(f"m_issuer_{t}_{y}", f"(ite gather_{t} {pooled} {sent})")

    def moved(self, t: int, i: int) -> str:
        held = [(f"(and to_{t}_{x} held_{t}_{x}_{i})", f"value_{t}_{x}_{i}") for x in self.all]
        total, started = "0", "false"
        for p in self.ps:
            value, chosen = f"value_{t}_{p}_{i}", f"from_{t}_{p}"
            combined = COMBINE[self.ob.operator or "sum"].format(a=total, b=value)
            step = f"(ite {chosen} (ite {started} {combined} {value}) {total})"
            total = self.let(f"total_{t}_{p}_{i}", step, "Int")
            started = self.let(f"started_{t}_{p}_{i}", f"(or {started} {chosen})")
        sent = _ite(self.root(t, f"value_{t}_{{x}}_{i}"), "0")
        return f"(ite reduce_{t} {total} (ite gather_{t} {_ite(held, '0')} {sent}))"

    def update(self, t: int) -> None:
        n = t + 1
        for x in self.all:
            # Deliveries add to what is there; a gather or a reduction replaces it.
            adds = self.let(
                f"adds_{t}_{x}", f"(and to_{t}_{x} (not result_{t}) (or send_{t} broadcast_{t}))"
            )
            puts = self.let(f"puts_{t}_{x}", f"(and to_{t}_{x} (or gather_{t} reduce_{t}))")
            for i in self.cells:
                old, new = f"held_{t}_{x}_{i}", f"(and {adds} moves_{t}_{i})"
                self.let(f"held_{n}_{x}_{i}", f"(or {old} {puts} {new})")
                if self.values:
                    value = f"(ite (or {puts} {new}) moved_{t}_{i} value_{t}_{x}_{i})"
                    self.let(f"value_{n}_{x}_{i}", value, "Int")
            joined = f"(and (or (not {self.has(t, x)}) complete_{t}_{x}) m_complete_{t})"
            self.let(
                f"complete_{n}_{x}",
                f"(ite {puts} m_complete_{t} (ite {adds} {joined} complete_{t}_{x}))",
            )
            for p in self.ps:
                old, new = f"source_{t}_{x}_{p}", f"m_source_{t}_{p}"
                self.let(f"source_{n}_{x}_{p}", f"(ite {puts} {new} (or {old} (and {adds} {new})))")
            for y in self.all:
                old, new = f"issuer_{t}_{x}_{y}", f"m_issuer_{t}_{y}"
                put = f"(ite reduce_{t} {'true' if x == y else 'false'} {new})"
                self.let(f"issuer_{n}_{x}_{y}", f"(ite {puts} {put} (or {old} (and {adds} {new})))")
            if self.ob.projected is not None:
                self.update_result(t, x)

    def update_result(self, t: int, x: int) -> None:
        makes = self.let(f"makes_{t}_{x}", f"(and project_{t} root_{t}_{x})")
        gets = self.let(f"gets_{t}_{x}", f"(and result_{t} to_{t}_{x})")

        def term(name: str, made: str) -> str:
            sent = _ite(self.root(t, f"r_{name}".replace("@", f"{t}_{{x}}")), "false")
            kept = f"r_{name}".replace("@", f"{t}_{x}")
            return f"(ite {makes} {made} (ite {gets} {sent} {kept}))"

        value = "0"
        if self.values:
            cells = " ".join([f"value_{t}_{x}_{i}" for i in self.cells])
            sent = _ite(self.root(t, f"r_value_{t}_{{x}}"), "0")
            value = f"(ite {makes} (projected {cells}) (ite {gets} {sent} r_value_{t}_{x}))"
        self.result_state(
            t + 1,
            x,
            f"(or r_has_{t}_{x} {makes} {gets})",
            [term(f"source_@_{p}", f"source_{t}_{x}_{p}") for p in self.ps],
            [term(f"issuer_@_{y}", f"issuer_{t}_{x}_{y}") for y in self.all],
            value,
        )

    # Conditions -------------------------------------------------------------------------------

    def accepted(self) -> None:
        """Every condition of the encoded checker, on every step and at the end."""
        for t in range(self.bounds.ops):
            self.accepted_delivery(t)
            self.accepted_local(t)
        for c in self.ob.demanded:
            self.observed(self.number[c])

    def accepted_delivery(self, t: int) -> None:
        for x in self.all:
            r, to = f"root_{t}_{x}", f"to_{t}_{x}"
            for y in self.all:
                same = self.domain[x] == self.domain[y]
                ends = f"(and {r} to_{t}_{y})"
                if same:
                    self.guard("locality", _no(f"(and send_{t} {ends})"))
                else:
                    self.guard("locality", _no(f"(and broadcast_{t} {ends})"))
                    self.guard("locality", _no(f"(and (or gather_{t} reduce_{t}) {to} to_{t}_{y})"))
                    if x in self.ps:
                        self.guard("locality", _no(f"(and reduce_{t} from_{t}_{x} to_{t}_{y})"))
            lacks = conj([f"(not (and moves_{t}_{i} held_{t}_{x}_{i}))" for i in self.cells])
            self.guard("redelivery", f"(=> adds_{t}_{x} {lacks})")
            value = f"(and {r} (not result_{t}))"
            holds = conj([f"(=> piece_{t}_{i} held_{t}_{x}_{i})" for i in self.cells])
            self.guard("availability", f"(=> (and send_{t} {value}) {holds})")
            self.guard("availability", f"(=> (and broadcast_{t} {value}) {self.has(t, x)})")
            if self.ob.projected is not None:
                self.guard("availability", f"(=> (and result_{t} {r}) r_has_{t}_{x})")
                self.guard("redelivery", f"(=> (and result_{t} {to}) (not r_has_{t}_{x}))")

    def accepted_local(self, t: int) -> None:
        for x in self.all:
            r, to = f"root_{t}_{x}", f"to_{t}_{x}"
            self.guard("availability", f"(=> (and gather_{t} {to}) {self.has(t, x)})")
            done = f"complete_{t}_{x}"
            self.guard(
                "redelivery", f"(=> (and reduce_{t} {to}) (not (and {self.has(t, x)} {done})))"
            )
            if self.ob.projected is not None:
                at = f"(and project_{t} {r})"
                self.guard("projection", f"(=> {at} {self.whole(t, x)})")
                self.guard("completion", f"(=> {at} {done})")
                self.guard("redelivery", f"(=> {at} (not r_has_{t}_{x}))")
        for i in self.cells:
            brings = [f"(and to_{t}_{x} held_{t}_{x}_{i})" for x in self.all]
            tiles = [disj(brings), *[_no(f"(and {a} {b})") for a, b in _pairs(brings)]]
            self.guard("availability", f"(=> gather_{t} {conj(tiles)})")
        for p, name in enumerate(self.ob.producers):
            if self.ob.reduced is None:
                self.guard("reduction", f"(not reduce_{t})")
                continue
            is_one = f"from_{t}_{p}" if name in self.ob.reduced else f"(not from_{t}_{p})"
            self.guard("reduction", f"(=> reduce_{t} {is_one})")
            open_ = f"(and {self.whole(t, p)} (not complete_{t}_{p}))"
            self.guard("reduction", f"(=> (and reduce_{t} from_{t}_{p}) {open_})")

    def observed(self, c: int) -> None:
        ob, n = self.ob, self.bounds.ops
        if VALUE in ob.observed:
            self.claim(self.whole(n, c))
            self.guard("completion", f"complete_{n}_{c}")
            self.admissible(c, "")
        if ob.projected is not None:
            self.claim(f"r_has_{n}_{c}")
            self.admissible(c, "r_")

    def admissible(self, c: int, state: str) -> None:
        ob, n = self.ob, self.bounds.ops
        source = [f"{state}source_{n}_{c}_{p}" for p in self.ps]
        owners = ob.owners
        if owners is not None:
            for y, name in enumerate(self.xs):
                if name not in owners:
                    self.guard("authority", f"(not {state}issuer_{n}_{c}_{y})")
                    if y in self.ps and ob.reduced is None:
                        self.guard("authority", f"(not {source[y]})")
        if ob.reduced is not None:
            exact = [
                s if p in ob.reduced else _no(s) for s, p in zip(source, ob.producers, strict=True)
            ]
            self.guard("provenance", conj(exact))
        elif owners is None:
            members = ob.members(ob.mapped[self.xs[c]])
            strangers = [s for s, p in zip(source, ob.producers, strict=True) if p not in members]
            lineage = conj([_no(s) for s in strangers])
            if ob.replicate:
                lineage = disj([lineage, self.several(source)])
            self.guard("provenance", lineage)

    def several(self, source: list[str]) -> str:
        return disj([f"(and {a} {b})" for a, b in _pairs(source)])

    def wrong(self) -> Iterator[str]:
        """A demanded consumer observes another value than the reference's."""
        ob, n = self.ob, self.bounds.ops
        reduced: list[str] = []
        for i in self.cells:
            total = f"own_0_{i}"
            for p in list(self.ps)[1:]:
                total = COMBINE[ob.operator or "sum"].format(a=total, b=f"own_{p}_{i}")
                total = self.let(f"reduced_{p}_{i}", total, "Int")
            reduced.append(total)
        for name in ob.demanded:
            c = self.number[name]
            of = self.number[min(ob.owners) if ob.owners else ob.mapped[name]]
            expected = reduced if ob.reduced else [f"own_{of}_{i}" for i in self.cells]
            spared = "false"
            for surface in ob.observed:
                state = "" if surface == VALUE else "r_"
                if ob.replicate and ob.owners is None:
                    spared = self.several([f"{state}source_{n}_{c}_{p}" for p in self.ps])
                if surface == VALUE:
                    for i in self.cells:
                        yield f"(and (not {spared}) (not (= value_{n}_{c}_{i} {expected[i]})))"
                else:
                    result = f"(projected {' '.join(expected)})"
                    yield f"(and (not {spared}) (not (= r_value_{n}_{c} {result})))"

    # Cost -------------------------------------------------------------------------------------

    def costs(self) -> tuple[str, ...]:
        """The footprint's components, as terms."""
        costs: tuple[list[str], ...] = ([], [], [], [], [], [])
        cross, crossings, local, locals_, reductions, ops = costs
        whole = sum(self.sizes)
        output = self.ob.sizes[self.ob.projected.output] if self.ob.projected else 0
        for t in range(self.bounds.ops):
            pieces = [
                f"(ite (and send_{t} (not result_{t}) piece_{t}_{i}) {self.sizes[i]} 0)"
                for i in self.cells
            ]
            cross += [*pieces, f"(ite (and send_{t} result_{t}) {output} 0)"]
            crossings.append(f"(ite send_{t} 1 0)")
            for x in self.all:
                for i in self.cells:
                    gets = f"(and broadcast_{t} (not result_{t}) to_{t}_{x} sent_{t}_{i})"
                    lacks = f"(and gather_{t} to_{t}_{x} (not held_{t}_{x}_{i}))"
                    local.append(f"(ite (or {gets} {lacks}) {self.sizes[i]} 0)")
                local.append(f"(ite (and broadcast_{t} result_{t} to_{t}_{x}) {output} 0)")
            named = _sum([f"(ite from_{t}_{p} {whole} 0)" for p in self.ps])
            local.append(f"(ite reduce_{t} (- {named} {whole}) 0)")
            locals_.append(f"(ite (or broadcast_{t} gather_{t}) 1 0)")
            reductions.append(f"(ite reduce_{t} 1 0)")
            ops.append(f"(ite idle_{t} 0 1)")
        return tuple([_sum(terms) for terms in costs])

    def priced(self) -> None:
        """Name the components of the cost."""
        for n, cost in enumerate(self.costs()):
            self.let(f"cost_{n}", cost, "Int")

    def cheaper_than(self, bound: Cost) -> str:
        """Lexicographically less."""
        text = "false"
        for n, limit in reversed(list(enumerate(bound))):
            text = f"(or (< cost_{n} {limit}) (and (= cost_{n} {limit}) {text}))"
        return text

    # Answers ----------------------------------------------------------------------------------

    def solve(self) -> Found:
        script = Script(logic=LOGIC, body=tuple(self.body))
        outcome = solver.decide(script, rlimit=self.bounds.rlimit)
        if outcome.answer is not Answer.SAT:
            return Found(answer=outcome.answer)
        ops = tuple(self.read(outcome))
        contract = self.ob.contract
        plan = Plan(contract=contract.name, tag=contract.tag, ops=ops)
        cost = [int(outcome.constants.get(f"cost_{n}", 0)) for n in range(6)]
        return Found(answer=Answer.SAT, plan=plan, cost=None if self.values else tuple(cost))

    def read(self, outcome: Outcome) -> Iterator[AnyOp]:
        """The ops that a model chose."""

        def true(name: str) -> bool:
            return outcome.constants.get(name, False) is True

        def chosen(name: str) -> tuple[str, ...]:
            return tuple([x for j, x in enumerate(self.xs) if true(f"{name}_{j}")])

        for t in range(self.bounds.ops):
            root, to = chosen(f"root_{t}")[0], chosen(f"to_{t}")
            projected = self.ob.projected
            result = projected is not None and true(f"result_{t}")
            surface = projected.output if projected is not None and result else VALUE
            if true(f"send_{t}"):
                pieces = [i for i in self.cells if true(f"piece_{t}_{i}")]
                cut = len(pieces) < len(self.cells) and not result
                part = Part(index=pieces[0], of=len(self.cells)) if cut else None
                yield Send(src=root, dst=to[0], surface=surface, part=part)
            elif true(f"broadcast_{t}"):
                yield Broadcast(src=root, dsts=to, surface=surface)
            elif true(f"gather_{t}"):
                yield AllGather(members=to)
            elif true(f"project_{t}") and projected is not None:
                yield Project(projection=projected.name, at=root)
            elif true(f"reduce_{t}"):
                yield Reduce(
                    operator=self.ob.operator or "sum", sources=chosen(f"from_{t}"), targets=to
                )


def _pairs(terms: list[str]) -> list[tuple[str, str]]:
    return [(a, b) for n, a in enumerate(terms) for b in terms[n + 1 :]]
