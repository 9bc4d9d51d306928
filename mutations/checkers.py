"""Checker mutants: every rule dropped, and every condition in a rule weakened, one at a time.

A dropped rule is a :class:`Checker` over the others. A weakened condition is the checker with one
name swapped for a more permissive one: a guard, or an argument that a rule reads. A campaign
*notices* a checker mutant where it accepts a mutated plan that is wrong, or where it accepts one
that is right in every observation and that a stated condition of an op forbids all the same.
A mutant of static validation is noticed where it lets a contract pass that must be rejected.
"""

# pyright: basic

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from itertools import combinations
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec import Struct

import sembridge.check as check_module
import sembridge.rules as rules_module
import sembridge.state as state_module
from sembridge import obligations
from sembridge.check import Checker
from sembridge.obligations import Obligations, validate
from sembridge.plan import VALUE, AllGather, Broadcast, Plan, Reduce
from sembridge.rules import RULES, Rule, identify
from sembridge.state import Holding, State, overlaps

Patched = dict[Any, Any]


class Weakening(Struct, frozen=True, kw_only=True):
    """One condition weakened: ``where`` is the module, class or table, ``name`` what is swapped."""

    name: str
    says: str
    where: Any
    attribute: Any
    becomes: Any


WEAKENINGS: dict[str, Weakening] = {}


def _weaken(name: str, says: str, where: Any, attribute: Any, becomes: Any) -> None:
    WEAKENINGS[name] = Weakening(
        name=name, says=says, where=where, attribute=attribute, becomes=becomes
    )


def _always(*_: Any, **__: Any) -> bool:
    return True


def _never(*_: Any, **__: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    return None


# The guards, by the name that the rules imported them under.
_weaken("crosses", "any send crosses", rules_module, "crosses", _always)
_weaken("inside", "every domain is one", state_module, "inside", _always)
_weaken("registered", "any operator is registered", rules_module, "registered", _always)
_weaken("exactly", "any sources do", rules_module, "exactly", _always)
_weaken("exactly-fewer", "sources may be left out", rules_module, "exactly", lambda s, r: s <= r)
_weaken("exactly-more", "sources may be added", rules_module, "exactly", lambda s, r: s >= r)
_weaken(
    "exactly-count", "so many sources do", rules_module, "exactly", lambda s, r: len(s) == len(r)
)
_weaken("outstanding", "anything may be reduced", rules_module, "outstanding", _always)
_weaken(
    "issuers-only",
    "where the value comes from does not matter to authority",
    rules_module,
    "issued_by_owner",
    lambda issuers, sources, owners, reduced: issuers <= owners,
)
_weaken(
    "sources-only",
    "who issues a decision does not matter to authority",
    rules_module,
    "issued_by_owner",
    lambda issuers, sources, owners, reduced: reduced | (sources <= owners),
)
_weaken(
    "some-issuer",
    "one owner among the issuers is enough",
    rules_module,
    "issued_by_owner",
    lambda issuers, sources, owners, reduced: bool(issuers & owners),
)
_weaken("substitutable", "any producer stands in", rules_module, "substitutable", _always)
_weaken(
    "some-member",
    "one class member among the sources is enough",
    rules_module,
    "substitutable",
    lambda sources, members: bool(sources & members),
)
_weaken(
    "reassembled-anywhere",
    "slices of any placement make up the value",
    rules_module,
    "reassembled",
    lambda replicate, several: several,
)
_weaken(
    "reassembled-from-one",
    "one foreign replica counts as reassembled",
    rules_module,
    "reassembled",
    lambda replicate, several: replicate,
)

# What is held, and how much of it.
_weaken("no-overlap", "nothing is ever delivered twice", rules_module, "overlaps", _never)
_weaken(
    "overlap-of-wholes",
    "only a whole is delivered twice",
    rules_module,
    "overlaps",
    lambda held, span: held.whole,
)
_weaken(
    "overlap-empty",
    "an empty slice repeats nothing",
    rules_module,
    "overlaps",
    lambda held, span: not (span and span[0] == span[1]) and overlaps(held, span),
)
_weaken(
    "whole-over-slices",
    "a whole may come on top of slices",
    rules_module,
    "overlaps",
    lambda held, span: span is not None and overlaps(held, span),
)
_weaken("any-cover", "any slices make up the whole", rules_module, "disjoint_cover", _always)
_weaken(
    "cover-overlapping",
    "slices that make up the whole may overlap",
    rules_module,
    "disjoint_cover",
    lambda held, elements: _reach(held, elements) == elements,
)
_weaken(
    "cover-in-part",
    "disjoint slices need not make up the whole",
    rules_module,
    "disjoint_cover",
    lambda held, elements: sum(elements if h.whole else h.size for h in held) <= elements,
)
_weaken("covers", "a holder of some slice sends any slice", Holding, "covers", _always)
_weaken("twice", "a list may name an endpoint twice", State, "twice", _nothing)


def _reach(held: Iterable[Holding], elements: int) -> int:
    """How many elements the holdings have in one run from the first, overlaps allowed."""
    pieces = sorted(p for h in held for p in ([(0, elements)] if h.whole else h.pieces))
    reached = 0
    for start, stop in pieces:
        if start <= reached:
            reached = max(reached, stop)
    return reached


# What an op, a consumer or a plan is seen as.


def _seen(function: Callable[..., Any], see: Callable[..., tuple[Any, ...]]) -> Any:
    return lambda *args: function(*see(*args))


def _once(op: Any, field: str) -> Any:
    return msgspec.structs.replace(op, **{field: tuple(dict.fromkeys(getattr(op, field)))})


def _whole(held: Holding | None) -> Holding | None:
    return held and Holding(held.complete, held.sources, held.issuers)


def _holds(s: State, endpoint: str, surface: str) -> bool:
    at = s.copies(surface)
    return bool(at.get(endpoint) or s.own(at, endpoint))


def _any_surface(s: State, c: str, surface: str, held: Holding | None) -> tuple[Any, ...]:
    copies = (at[c] for at in s.held.values() if c in at)
    return s, c, surface, held or next(copies, None)


_observe, _semantics = check_module.observe, rules_module.SEMANTICS
_broadcast = _semantics[Broadcast]
_weaken(
    "slices-observed",
    "slices count as the whole at a consumer",
    check_module,
    "observe",
    _seen(_observe, lambda s, c, surface, held: (s, c, surface, _whole(held))),
)
_weaken(
    "absence-observed",
    "a consumer that holds nothing is fine",
    check_module,
    "observe",
    lambda s, c, surface, held: (
        _observe(s, c, surface, held) if held or s.holds_anything(c) else None
    ),
)
_weaken(
    "any-surface",
    "any surface will do",
    check_module,
    "observe",
    _seen(_observe, _any_surface),
)
_weaken(
    "value-only",
    "of several surfaces, the value is enough",
    check_module,
    "observe",
    lambda s, c, surface, held: (
        None
        if surface != VALUE and VALUE in s.ob.observed and held is None
        else _observe(s, c, surface, held)
    ),
)
_weaken(
    "source-counted-once",
    "a source may stand in a reduction twice",
    _semantics,
    Reduce,
    _seen(_semantics[Reduce], lambda s, op: (s, _once(op, "sources"))),
)
_weaken(
    "member-counted-once",
    "a member may stand in an all_gather twice",
    _semantics,
    AllGather,
    _seen(_semantics[AllGather], lambda s, op: (s, _once(op, "members"))),
)
_weaken(
    "broadcast-from-nowhere",
    "a broadcast of what the root lacks is passed over",
    _semantics,
    Broadcast,
    lambda s, op: _broadcast(s, op) if _holds(s, op.src, op.surface) else None,
)


def _tag_with(**same: bool) -> Callable[..., Any]:
    """``identify`` that does not look at some fields of the tag."""

    def blind(s: State, plan: Plan) -> None:
        tag, own = s.ob.contract.tag, plan.tag
        if tag is not None and own is not None:
            own = msgspec.structs.replace(own, **{name: getattr(tag, name) for name in same})
        identify(s, msgspec.structs.replace(plan, tag=own))

    return blind


for _field in ("request", "token", "microbatch", "epoch"):
    _weaken(
        f"any-{_field}",
        f"the tag's {_field} is not compared",
        check_module,
        "identify",
        _tag_with(**{_field: True}),
    )


# Static validation: each rule dropped, and each of its several messages.

CONTRACT_CONDITIONS: dict[str, tuple[str, ...]] = {
    "contract.owner": ("authority is required", "joined by no replica class"),
    "contract.reduction": (
        "no plan completes it",
        "calls complete",
        "is not the placement's",
        "not exactly the producers",
        "span several native domains",
    ),
    "contract.projection": (
        "over a scalar",
        "over int",
        "zero-length axis",
        "cannot hold index",
        "along the sharded axis",
        "not sharded along its last axis",
        "valid_last beside a vocabulary",
        "a vocabulary of",
        "no native combine joins them",
        "largest of",
        "choices for",
        "sampling without",
    ),
}
"""Conditions of static validation, by the words that their messages have."""


def _unsaid(name: str, words: str) -> list[Any]:
    """The contract rules, with one condition of one rule taken out."""

    def without(rule: Any) -> Any:
        return lambda ob: [m for m in rule(ob) if words not in m]

    return [(n, without(r) if n == name else r) for n, r in obligations.CONTRACT_RULES]


for _name, _ in obligations.CONTRACT_RULES:
    _weaken(
        _name,
        "the contract rule is dropped",
        obligations,
        "CONTRACT_RULES",
        [entry for entry in obligations.CONTRACT_RULES if entry[0] != _name],
    )
    for _words in CONTRACT_CONDITIONS.get(_name, ()):
        _weaken(
            f"{_name} ({_words})",
            "one condition of the contract rule is dropped",
            obligations,
            "CONTRACT_RULES",
            _unsaid(_name, _words),
        )


@contextmanager
def weakened(weakening: Weakening) -> Generator[None]:
    """The checker with one condition weakened, while the context lasts."""
    if isinstance(weakening.where, dict):
        with patch.dict(weakening.where, {weakening.attribute: weakening.becomes}):
            yield
    else:
        with patch.object(weakening.where, weakening.attribute, weakening.becomes):
            yield


FULL = Checker()


def accepts(ob: Obligations, plan: Plan, checker: Checker = FULL) -> bool:
    """Whether the checker, as it is now, finds nothing wrong."""
    return not validate(ob) and not checker.violations(ob, plan)


def dropping(rule: Rule) -> Checker:
    """The checker without one rule."""
    return Checker([other for other in RULES if other is not rule])


class _ByRule(State):
    """A state whose violations carry the rule's id in the place of its name."""

    def fail(self, rule: Rule, endpoint: str | None, message: str) -> None:
        super().fail(msgspec.structs.replace(rule, name=rule.id), endpoint, message)


def broken(ob: Obligations, plan: Plan) -> frozenset[str]:
    """Ids of the rules that a plan breaks: the rules that cannot be dropped without each other.

    A rule reports and changes nothing else, so the checker without some rules accepts a plan
    exactly where all that it breaks is among them.
    """
    state = _ByRule(ob)
    identify(state, plan)
    for op in plan.ops:
        FULL.step(state, op)
    FULL.observe(state)
    return frozenset(v.rule for v in state.found)


REDUNDANT: dict[str, str] = {
    "exactly-more": (
        "the sources of a reduction are also counted, and a superset of R with |R| members is R; "
        "at a consumer sources are producers, and R is all of them"
    ),
    "issuers-only": (
        "issuers differ from sources only after a reduction, and without R any reduction breaks a "
        "rule"
    ),
    "contract.observation": (
        "a projected surface over a partial placement without an authorized reduction: a partial "
        "placement without one is rejected by contract.reduction whatever the surface"
    ),
}
"""Checker mutants that accept nothing that the checker rejects, and the proof."""


def smallest_cover(kills: Collection[frozenset[str]]) -> tuple[str, ...]:
    """The smallest set of rules of which every killed mutant breaks one (set cover, exact).

    ``kills`` are the rules that each mutant breaks. Ties go to the first set in rule order.
    """
    minimal = [k for k in set(kills) if not any(other < k for other in kills)]
    needed = {rule for k in minimal if len(k) == 1 for rule in k}
    left = [k for k in minimal if not k & needed]
    order = {rule.id: i for i, rule in enumerate(RULES)}
    candidates = sorted({rule for k in left for rule in k}, key=lambda r: (order.get(r, -1), r))
    for size in range(len(candidates) + 1):
        for chosen in combinations(candidates, size):
            if all(k.intersection(chosen) for k in left):
                return tuple(sorted(needed | set(chosen), key=lambda r: (order.get(r, -1), r)))
    return ()
