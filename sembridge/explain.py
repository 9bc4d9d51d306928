"""Why an edge gets its plan: which fact allowed what, what is missing, and what it would save.

Nothing here is a rule of its own. Each statement is a comparison of two lowered contracts, one of
them with a fact taken away or added; bytes and startups are the difference of their footprints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from sembridge.contract import Contract, Fact, Facts, Reduction
from sembridge.draw import size_of
from sembridge.footprint import Footprint
from sembridge.layout import Partial, Replicate
from sembridge.lowering import lower_valid
from sembridge.obligations import resolve, validate
from sembridge.plan import Plan
from sembridge.surfaces import ShardedTokens, Surface, Tokens, TopLogprobs
from sembridge.verdict import Violation

Standing = Literal["authorizes", "evidence", "absent", "alternative"]

ALLOWS: dict[str, str] = {
    "replica_classes": "lets one producer stand in for its class",
    "reduction": "lets the partials be completed",
    "owner": "makes the owner the one that issues the decision",
    "demand": "lets consumers that are not demanded go without",
    "surface": "says what the consumers observe",
}
"""What each fact of a contract can change in its plan."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a contract lowers to: a footprint and its ops by kind, or the rules that reject it."""

    footprint: Footprint | None = None
    ops: str = ""
    rejected: tuple[str, ...] = ()


class Reason(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fact, where it comes from, and what the contract lowers to otherwise.

    ``otherwise`` is without the fact where it authorizes, and with it where it does not; an
    ``alternative`` would take the place of a fact that authorizes. ``saves`` is (bytes, startups)
    across domains that the fact saves, or would.
    """

    fact: str
    standing: Standing
    what: str
    origin: str | None = None
    by: str | None = None
    otherwise: Outcome
    saves: tuple[int, int] | None = None


class Explanation(Struct, frozen=True, kw_only=True):
    """A contract's outcome, the reasons for it, and all of it in sentences."""

    contract: str
    outcome: Outcome
    violations: tuple[Violation, ...]
    reasons: tuple[Reason, ...]
    sentences: tuple[str, ...]


def explain(contract: Contract) -> Explanation:
    """Explain the semantic lowerer's plan, or why there is none.

    Raises:
        BadInput: the contract refers to what is not there.
    """
    outcome = _outcome(contract)
    reasons = (*_present(contract, outcome), *_missing(contract, outcome))
    return Explanation(
        contract=contract.name,
        outcome=outcome,
        violations=tuple(validate(resolve(contract))),
        reasons=reasons,
        sentences=tuple(_sentences(contract, outcome, reasons)),
    )


def _outcome(contract: Contract) -> Outcome:
    ob = resolve(contract)
    rejected = validate(ob)
    if rejected:
        return Outcome(rejected=tuple(dict.fromkeys(v.rule for v in rejected)))
    plan, report = lower_valid(ob)
    return Outcome(footprint=report.footprint, ops=_kinds(plan))


def _kinds(plan: Plan) -> str:
    counted = Counter(str(op.__struct_config__.tag) for op in plan.ops)
    return ", ".join(f"{n} {kind}" for kind, n in counted.items())


def _saves(dear: Outcome, cheap: Outcome) -> tuple[int, int] | None:
    if dear.footprint is None or cheap.footprint is None:
        return None
    a, b = dear.footprint, cheap.footprint
    return a.cross_bytes - b.cross_bytes, a.cross_startups - b.cross_startups


def _with(contract: Contract, name: str, fact: object) -> Contract:
    return replace(contract, facts=replace(contract.facts, **{name: fact}))


def _facts(facts: Facts) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(facts, name)) for name in ALLOWS)


def _present(contract: Contract, outcome: Outcome) -> Iterator[Reason]:
    """The facts that authorize, each compared with the contract that lacks it."""
    for name, fact in _facts(contract.facts):
        if fact is not None and fact.authorizes:
            without = _outcome(_with(contract, name, None))
            yield Reason(
                fact=name,
                standing="authorizes",
                what=_shown(contract, name, fact),
                origin=fact.origin,
                by=fact.by,
                otherwise=without,
                saves=_saves(without, outcome),
            )


def _missing(contract: Contract, outcome: Outcome) -> Iterator[Reason]:
    """Evidence, and facts that might be there, where they would make a cheaper plan, or one."""
    for name, fact in _facts(contract.facts):
        tried: list[tuple[Standing, Any]] = []
        if fact is not None and not fact.authorizes:
            tried = [("evidence", replace(fact, origin="graph"))]
        elif fact is None or name == "surface":
            standing: Standing = "absent" if fact is None else "alternative"
            tried = [(standing, candidate) for candidate in CANDIDATES[name](contract)]
        for standing, candidate in tried:
            given = _outcome(_with(contract, name, candidate))
            saves = _saves(outcome, given)
            if given.footprint is None or (saves is not None and saves <= (0, 0)):
                continue
            known = fact if standing == "evidence" else None
            yield Reason(
                fact=name,
                standing=standing,
                what=_shown(contract, name, candidate),
                origin=known and known.origin,
                by=known and known.by,
                otherwise=given,
                saves=saves,
            )


def _one_class(contract: Contract) -> list[Fact[Any]]:
    everyone = tuple(contract.mesh.producers)
    fits = isinstance(contract.placement, Replicate) and len(everyone) > 1
    return [Fact(value=(everyone,), origin="graph")] if fits else []


def _lineage(contract: Contract) -> list[Fact[Any]]:
    placement = contract.placement
    if not isinstance(placement, Partial):
        return []
    sources = tuple(contract.mesh.producers)
    return [Fact(value=Reduction(op=placement.op, sources=sources), origin="graph")]


def _an_owner(contract: Contract) -> list[Fact[Any]]:
    first = tuple(contract.mesh.producers[:1])
    fits = isinstance(contract.placement, Replicate) and len(contract.producers) > 1
    return [Fact(value=first, origin="runtime")] if fits else []


def _a_surface(contract: Contract) -> list[Fact[Any]]:
    """Narrower surfaces of logits, for consumers that need no more."""
    value = contract.value
    if value.kind != "logits" or not value.shape:
        return []
    vocabulary = max(value.shape[-1] * len(contract.producers), 1)
    surfaces: list[Surface] = [Tokens(), TopLogprobs(k=5), ShardedTokens(vocabulary=vocabulary)]
    return [Fact(value=surface, origin="runtime") for surface in surfaces]


def _no_candidates(_: Contract) -> list[Fact[Any]]:
    return []


CANDIDATES: dict[str, Callable[[Contract], list[Fact[Any]]]] = {
    "replica_classes": _one_class,
    "reduction": _lineage,
    "owner": _an_owner,
    "demand": _no_candidates,
    "surface": _a_surface,
}
"""What an absent fact could say; its effect is computed, never assumed."""


def _shown(contract: Contract, name: str, fact: Any) -> str:
    """A fact's value in a few words."""
    match name:
        case "replica_classes":
            return "; ".join(_few(members) for members in fact.value[:4])
        case "reduction":
            return f"{fact.value.op} over {_few(fact.value.sources)}"
        case "owner":
            return _few(fact.value)
        case "demand":
            demanded = tuple(c.id for c in contract.consumers if c.demanded)
            return f"{_few(demanded)} of {len(contract.consumers)}"
        case _:
            k = getattr(fact.value, "k", None)
            tag = str(fact.value.__struct_config__.tag)
            return tag if k is None else f"{tag}({k})"


def _few(ids: tuple[str, ...], most: int = 4) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _opening(contract: Contract, outcome: Outcome) -> str:
    value = contract.value
    placement = str(contract.placement.__struct_config__.tag)
    shape = "×".join(map(str, value.shape)) or "scalar"
    what = f"{contract.name}: {value.kind} of {shape} {value.dtype}, {placement}"
    if outcome.footprint is None:
        return f"{what}, has no plan: it is rejected with {_list(outcome.rejected)}."
    return f"{what}, is lowered to {outcome.ops}: {_moved(outcome.footprint)}."


def _moved(footprint: Footprint) -> str:
    return f"{size_of(footprint.cross_bytes)} across domains in {footprint.cross_startups}"


def _list(items: tuple[str, ...]) -> str:
    return " and ".join(items)


def _sentences(contract: Contract, outcome: Outcome, reasons: tuple[Reason, ...]) -> Iterator[str]:
    yield _opening(contract, outcome)
    idle = [r for r in reasons if r.standing == "authorizes" and r.otherwise == outcome]
    for reason in reasons:
        if reason not in idle:
            yield f"{_standing(reason)}{_effect(outcome, reason)}."
    if idle:
        yield f"{_list(tuple(map(_named, idle)))} {'change' if idle[1:] else 'changes'} nothing."


def _named(reason: Reason) -> str:
    source = f" ({reason.origin}{f', {reason.by}' if reason.by else ''})" if reason.origin else ""
    return f"{reason.fact} {reason.what}{source}"


def _standing(reason: Reason) -> str:
    match reason.standing:
        case "authorizes":
            return f"{_named(reason)} {ALLOWS[reason.fact]}; without it "
        case "evidence":
            return f"{_named(reason)} is only evidence and authorizes nothing; established, it "
        case "absent":
            return f"{reason.fact} is absent; {reason.what} "
        case "alternative":
            return f"if the consumers observed {reason.what} and no more, that "


def _effect(outcome: Outcome, reason: Reason) -> str:
    """What the other contract lowers to, beside this one."""
    other, present = reason.otherwise, reason.standing == "authorizes"
    if other.footprint is None:
        return f"the contract is rejected with {_list(other.rejected)}"
    moved = f"{_moved(other.footprint)} ({other.ops})"
    if outcome.footprint is None:
        return f"there is a plan: {moved}" if present else f"would give a plan: {moved}"
    if not present:
        return f"would save {_difference(reason)}: {moved}"
    if reason.saves == (0, 0):
        return f"the plan is {moved}"
    verb = "costs" if reason.saves and reason.saves < (0, 0) else "saves"
    return f"{moved}, so it {verb} {_difference(reason)}"


def _difference(reason: Reason) -> str:
    count, startups = reason.saves or (0, 0)
    parts: list[str] = []
    if count:
        parts.append(size_of(abs(count)))
    if startups:
        less = "more " if (startups < 0) == (count > 0) and count else ""
        parts.append(f"{abs(startups)} {less}startup{'s' if abs(startups) != 1 else ''}")
    return " and ".join(parts) or "nothing"
