"""What the ranks of the fault campaign do: two plans in turn, and one rank suffers at a moment.

Imported by host processes. The first plan completes a sum, projects at its owner, sends tokens
and broadcasts them; the second sends one representative of a large value and broadcasts that. So
every rank computes, sends or receives across, and takes part in native collectives.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from functools import lru_cache
from threading import Timer
from time import monotonic, sleep
from typing import Any

from experiments.faults import OUTSIDE_S
from sembridge.contract import (
    Consumer,
    Contract,
    Domain,
    Fact,
    Facts,
    Producer,
    Reduction,
    Value,
)
from sembridge.layout import Partial, Placement, Replicate
from sembridge.live import executor
from sembridge.live.backends import Communicator
from sembridge.live.carrier import Connection
from sembridge.live.executor import Rank, lanes_of
from sembridge.live.faults import LiveError
from sembridge.live.frame import Frame
from sembridge.live.judge import as_expected, as_tensor
from sembridge.lowering import lower
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import Plan, Tag
from sembridge.reference import Array, revealing_inputs
from sembridge.surfaces import Complete, Surface, Tokens

HEAD, TAIL = "head", "tail"
RANKS = ("head/0", "head/1", "tail/0", "tail/1")
SENDER, RECEIVER = "head/1", "tail/0"
"""The owner, who sends in both plans, and who receives from it."""

ROUNDS = 10
AT = 1
"""The round in which a rank suffers: by then every connection and group has been used."""

WITHIN_S = 0.02
"""How long after the beginning of something a rank is in the middle of it."""

BOTH_WAYS_S = 0.2
"""How long the others wait for a rank inside a collective before it suffers."""


def _contract(name: str, columns: int, placement: Placement, facts: Facts) -> Contract:
    producers, consumers = ("p0", "p1"), ("c0", "c1")
    return Contract(
        name=name,
        value=Value(kind="logits", shape=(2, columns), dtype="float32"),
        domains={HEAD: Domain(stack="cpu"), TAIL: Domain(stack="cpu")},
        producers=tuple(Producer(id=p, domain=HEAD) for p in producers),
        consumers=tuple(
            Consumer(id=c, domain=TAIL, source=p, demanded=True)
            for c, p in zip(consumers, producers, strict=True)
        ),
        placement=placement,
        facts=facts,
        tag=Tag(request=name, token=0, microbatch=0, epoch=1),
    )


def _fact(value: Any) -> Any:
    return Fact(value=value, origin="graph")


@lru_cache(maxsize=1)
def work() -> tuple[tuple[Obligations, Plan, list[dict[str, Array]]], ...]:
    """The two plans, each with its contract's obligations and two inputs."""
    tokens: Surface = Tokens()
    contracts = (
        _contract(
            "tokens",
            64,
            Partial(op="sum"),
            Facts(
                reduction=_fact(Reduction(op="sum", sources=("p0", "p1"))),
                owner=Fact(value=("p1",), origin="runtime"),
                surface=Fact(value=tokens, origin="runtime"),
            ),
        ),
        _contract(
            "values",
            2**20,
            Replicate(),
            Facts(
                replica_classes=_fact((("p0", "p1"),)),
                owner=Fact(value=("p1",), origin="runtime"),
                surface=Fact(value=Complete(), origin="runtime"),
            ),
        ),
    )
    found: list[tuple[Obligations, Plan, list[dict[str, Array]]]] = []
    for contract in contracts:
        ob = resolve_valid(contract)
        found.append((ob, lower(contract), [revealing_inputs(ob, v) for v in range(2)]))
    return tuple(found)


def task(rank: Rank, arguments: dict[str, Any]) -> dict[str, int]:
    """Run both plans for some rounds; emit how it ended, and every observation that was wrong."""
    prepared = work()
    suffering = Suffering(rank, arguments) if rank.name == arguments["victim"] else None
    before = _peak_kib()
    try:
        for number in range(ROUNDS):
            if suffering is not None:
                suffering.enter(number)
            for ob, plan, inputs in prepared:
                _once(rank, ob, plan, inputs[number % 2], number)
            rank.emit({"round": number})
    except LiveError as error:
        where = {"local": error.local, "peer": error.peer, "edge": error.edge}
        tag = error.tag is not None
        ended = {"code": error.code, "tag": tag, **where, "says": error.message}
        rank.emit({"ended": ended, "at": monotonic(), "grown_kib": _peak_kib() - before})
        raise
    rank.emit({"ended": {"code": "finished"}, "at": monotonic(), "grown_kib": _peak_kib() - before})
    return {"rounds": ROUNDS}


def _once(rank: Rank, ob: Obligations, plan: Plan, inputs: dict[str, Array], number: int) -> None:
    names = lanes_of(ob)
    mine = next(x for x, name in names.items() if name == rank.name)
    value = as_tensor(ob, inputs[mine]) if mine in inputs else None
    tag = Tag(request=ob.contract.name, token=number, microbatch=0, epoch=1)
    seen = rank.run(ob, plan, names=names, value=value, tag=tag)
    if mine in ob.demanded and not as_expected(ob, inputs, mine, seen[mine]):
        rank.emit({"wrong": number})


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# Suffering --------------------------------------------------------------------------------------

IDLE = "between requests"
LARGE = 2**20
"""Bytes of payload from which a frame is large enough to be in the middle of it."""

SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


class Suffering:
    """A rank's fate: a signal to itself, at a moment of round ``AT``."""

    def __init__(self, rank: Rank, arguments: dict[str, Any]) -> None:
        self.rank, self.fate, self.moment = rank, arguments["fate"], arguments["moment"]
        self.armed = False
        for owner, name, wrapper in WRAPPED.get(self.moment, ()):
            self._wrap(owner, name, wrapper)

    def enter(self, number: int) -> None:
        """Begin a round."""
        self.armed = number == AT
        if self.armed and self.moment == IDLE:
            self.suffer()

    def suffer(self) -> None:
        """Say when, then end; whoever sends a signal from outside waits for the word."""
        self.rank.emit({"fault": monotonic()})
        if self.fate in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self.fate])
        else:
            sleep(OUTSIDE_S)

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            small = any(isinstance(a, Frame) and a.length < LARGE for a in args)
            if small or not self.armed:
                return original(*args, **kwargs)
            return wrapper(self, lambda: original(*args, **kwargs))

        setattr(owner, name, wrapped)


def _before(suffering: Suffering, call: Callable[[], Any]) -> Any:
    suffering.suffer()
    return call()


def _within(suffering: Suffering, call: Callable[[], Any]) -> Any:
    Timer(WITHIN_S, suffering.suffer).start()
    return call()


def _after(suffering: Suffering, call: Callable[[], Any]) -> Any:
    result = call()
    suffering.suffer()
    return result


def _while_awaited(suffering: Suffering, call: Callable[[], Any]) -> Any:
    sleep(BOTH_WAYS_S)
    return _before(suffering, call)


_COLLECTIVES = ("broadcast", "all_gather", "all_reduce")

WRAPPED: dict[str, tuple[tuple[Any, str, Callable[..., Any]], ...]] = {
    "before a send": ((Connection, "send", _before),),
    "within a send": ((Connection, "send", _within),),
    "after a send": ((Connection, "flush", _after),),
    "within a receive": ((Connection, "receive", _within),),
    "in a collective": tuple((Communicator, name, _while_awaited) for name in _COLLECTIVES),
    "in a projection": ((executor._Execution, "_project", _before),),
}
"""Moments by name, and what is wrapped to meet them. To add one, add an entry."""
