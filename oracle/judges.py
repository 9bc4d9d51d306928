"""Do the judges agree? Checker, SMT model, reference, oracle and live run on the same plans.

Two judges of legality disagree where one says legal and the other illegal. The executable
reference and the live run judge what is observed, not how it came there: each refutes a plan
that was called legal and then differs or cannot run; an illegal plan that it finds equal
(delivered twice, say) is no disagreement. ``unknown`` agrees with nothing and refutes nothing;
it is counted.

The registry holds two judges that are wrong on purpose. A comparison that does not catch them
compares nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

from oracle.enumerate import sequences
from oracle.optimum import figures
from oracle.program import BOUNDS
from oracle.shrink import Pair, shrink
from oracle.smt.prove import prove
from sembridge.check import check
from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.obligations import resolve, validate
from sembridge.plan import AnyOp, Plan
from sembridge.reference import Outcome, execute_valid

LEGAL, ILLEGAL, UNKNOWN, NOT_RUN = "legal", "illegal", "unknown", "not run"

NOT_LISTED = "not listed"
"""The oracle lists accepted sequences of its family; of other plans it says nothing."""

MAX_LISTED = 5_000


class Judge(Struct, frozen=True, kw_only=True):
    """``says`` gives an opinion: legal, illegal or unknown; or what a run of the plan shows.

    A ``live`` judge needs more than this kit, and is asked only where it is named.
    """

    name: str
    says: Callable[[Contract, Plan], str]
    sane: bool = True
    live: bool = False


def _checker(contract: Contract, plan: Plan) -> str:
    return str(check(contract, plan).verdict)


def _smt(contract: Contract, plan: Plan) -> str:
    return str(prove(contract, plan, explain=False).verdict)


def _reference(contract: Contract, plan: Plan) -> str:
    ob = resolve(contract)
    if validate(ob):
        return ILLEGAL
    try:
        return str(execute_valid(ob, plan).outcome)
    except BadInput:  # too large to execute
        return NOT_RUN


@lru_cache(maxsize=4)
def _listed(encoded: bytes) -> frozenset[tuple[AnyOp, ...]] | None:
    """The oracle's accepted sequences for a contract; None where they are too many to list."""
    ob = resolve(msgspec.json.decode(encoded, type=Contract))
    try:
        BOUNDS.check(ob)
    except BadInput:
        return None
    if figures(ob).sequences > MAX_LISTED:
        return None
    return frozenset([sequence.ops for sequence in sequences(ob)])


def _oracle(contract: Contract, plan: Plan) -> str:
    if validate(resolve(contract)):
        return ILLEGAL
    listed = _listed(msgspec.json.encode(contract))
    if listed is None or (plan.contract, plan.tag) != (contract.name, contract.tag):
        return NOT_RUN
    return LEGAL if plan.ops in listed else NOT_LISTED


def _live(contract: Contract, plan: Plan) -> str:
    from sembridge.live.judge import live_outcome, runnable  # torch is an extra

    ob = resolve(contract)
    if validate(ob):
        return ILLEGAL
    return str(live_outcome(ob, plan)) if runnable(ob) else NOT_RUN


JUDGES: dict[str, Judge] = {
    judge.name: judge
    for judge in (
        Judge(name="checker", says=_checker),
        Judge(name="smt", says=_smt),
        Judge(name="reference", says=_reference),
        Judge(name="oracle", says=_oracle),
        Judge(name="live", says=_live, live=True),
        Judge(name="accept-all", says=lambda contract, plan: LEGAL, sane=False),
        Judge(name="reject-all", says=lambda contract, plan: ILLEGAL, sane=False),
    )
}
"""Judges by name. To add one, add an entry."""

SANE: tuple[str, ...] = tuple(n for n, judge in JUDGES.items() if judge.sane and not judge.live)
"""The judges that are asked where none is named."""


class Disagreement(Struct, frozen=True, kw_only=True):
    """Two opinions that cannot both be right, on the smallest contract and plan found."""

    opinions: dict[str, str]
    contract: Contract
    plan: Plan


class Agreement(Struct, frozen=True, kw_only=True):
    """How often each combination of opinions came up, and where they cannot all be right.

    ``disagreements`` counts pairs; of these the first few are shown, shrunk.
    """

    judges: tuple[str, ...]
    pairs: int
    opinions: tuple[tuple[tuple[str, ...], int], ...]
    disagreements: int
    shown: tuple[Disagreement, ...]


REFUTES = (Outcome.DIFFERS, Outcome.FAULT)


def clash(opinions: Iterable[str]) -> bool:
    """Whether opinions cannot all be right.

    >>> clash(["legal", "legal", "equal"]), clash(["illegal", "equal"]), clash(["legal", "fault"])
    (False, False, True)
    """
    said = set(opinions)
    return LEGAL in said and (ILLEGAL in said or not said.isdisjoint(REFUTES))


def compare(
    pairs: Iterable[Pair],
    judges: Sequence[str] = SANE,
    *,
    show: int = 5,
    progress: Callable[[int], None] | None = None,
) -> Agreement:
    """Ask every judge about every pair.

    Raises:
        BadInput: a judge that there is none of, or fewer than two.
    """
    for name in judges:
        if name not in JUDGES:
            raise BadInput(f"no judge {name!r}; there are {', '.join(JUDGES)}")
    if len(set(judges)) < 2:
        raise BadInput("agreement takes two judges")
    says = [JUDGES[name].says for name in judges]

    def disagree(contract: Contract, plan: Plan) -> bool:
        return clash([say(contract, plan) for say in says])

    counts: Counter[tuple[str, ...]] = Counter()
    shown: list[Disagreement] = []
    for n, (contract, plan) in enumerate(pairs):
        opinions = tuple([say(contract, plan) for say in says])
        counts[opinions] += 1
        if clash(opinions) and len(shown) < show:
            smallest = shrink(contract, plan, disagree)
            final = [say(*smallest) for say in says]
            shown.append(
                Disagreement(
                    opinions=dict(zip(judges, final, strict=True)),
                    contract=smallest[0],
                    plan=smallest[1],
                )
            )
        if progress is not None:
            progress(n + 1)
    return Agreement(
        judges=tuple(judges),
        pairs=counts.total(),
        opinions=tuple(sorted(counts.items())),
        disagreements=sum([n for opinions, n in counts.items() if clash(opinions)]),
        shown=tuple(shown),
    )
