"""The lifecycle under every schedule: delays, drops, repeats, reorders, crashes at each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sembridge.live.lifecycle import (
    PROPOSALS,
    Action,
    Drained,
    Emptied,
    Ended,
    Failed,
    Lifecycle,
    LifecycleError,
    Lost,
    Message,
    Phase,
    Propose,
    Received,
    Seat,
    State,
    Tick,
    step,
)

FAILED = Phase.FAILED


class World:
    """Ranks and the messages between them; what is in flight is delivered in any order."""

    def __init__(self, hosts: dict[str, int]) -> None:
        seats = [Seat(host, lane) for host, lanes in hosts.items() for lane in range(lanes)]
        self.ranks = {seat: State(seat=seat, hosts=hosts) for seat in seats}
        self.flying: list[tuple[Seat, Seat, Message]] = []
        self.losses: list[tuple[Seat, Seat]] = []
        self.crashed: set[Seat] = set()
        self.faulty = False
        self.emptied: set[tuple[Seat, int]] = set()
        self.done: dict[tuple[str, int], Action] = {}
        self.wanted: dict[tuple[str, int], list[Action]] = {}

    @property
    def live(self) -> list[Seat]:
        return [seat for seat in self.ranks if seat not in self.crashed]

    def happen(self, seat: Seat, event) -> None:
        if seat in self.crashed:
            return
        before = self.ranks[seat]
        after, sends = step(before, event)
        self.ranks[seat] = after
        self.flying += [(seat, to, message) for to, message in sends]
        self._judge(before, after)

    def _judge(self, before: State, after: State) -> None:
        assert after.epoch - before.epoch in (0, 1)
        if after.epoch > before.epoch:
            assert before.phase is Phase.DRAINED or after.leads
            left = [seat for seat in self.ranks if (seat, before.epoch) not in self.emptied]
            assert not left, f"epoch {after.epoch} though {left} had not drained"
        if after.round > before.round:
            moved = {Phase.RUNNING: Action.ADMIT, Phase.DRAINING: Action.RETIRE}
            action = Action.CONTINUE if after.phase is before.phase else moved[after.phase]
            key = after.seat.host, before.round
            assert self.done.setdefault(key, action) is action, "ranks of a host disagree"
            wanted = self.wanted[key]
            assert len(wanted) == after.hosts[after.seat.host]
            assert action is (wanted[0] if len(set(wanted)) == 1 else Action.CONTINUE)

    def propose(self, seat: Seat, action: Action) -> None:
        self.wanted.setdefault((seat.host, self.ranks[seat].round), []).append(action)
        self.happen(seat, Propose(action))

    def drain(self, seat: Seat) -> None:
        self.emptied.add((seat, self.ranks[seat].epoch))
        self.happen(seat, Emptied())

    def deliver(self, index: int, *, keep: bool = False) -> None:
        sender, to, message = self.flying[index] if keep else self.flying.pop(index)
        self.happen(to, Received(sender, message))

    def crash(self, seat: Seat) -> None:
        self.crashed.add(seat)
        self.faulty = True
        self.losses += [(other, seat) for other in self.ranks[seat].neighbours]

    def settle(self, *, admit: bool = True) -> None:
        """One fair round: what is lost is noticed, all is delivered, everyone acts and repeats."""
        for watcher, gone in self.losses:
            self.happen(watcher, Lost(gone))
        self.losses.clear()
        for seat in self.live:
            state = self.ranks[seat]
            if state.proposal is None and state.phase in PROPOSALS and admit:
                self.propose(seat, PROPOSALS[state.phase][1])
            elif state.phase is Phase.DRAINING:
                self.drain(seat)
        for _ in range(len(self.flying)):
            self.deliver(0)
        for seat in self.live:
            self.happen(seat, Tick())


def overlapping(states: list[State]) -> list[tuple[Seat, Seat]]:
    """Pairs of ranks of which one has entered a request and the other has not left the last."""
    return [
        (a.seat, b.seat)
        for a in states
        for b in states
        if a.epoch > b.epoch and (a.epoch > b.epoch + 1 or b.phase not in (Phase.DRAINED, FAILED))
    ]


class Schedules(RuleBasedStateMachine):
    """Any schedule of a few ranks; afterwards a fair one, under which all get on or all fail."""

    @initialize(a=st.integers(1, 3), b=st.integers(1, 3), c=st.sampled_from([0, 0, 0, 1]))
    def start(self, a, b, c):
        self.world = World({"a": a, "b": b} | ({"c": c} if c else {}))

    def pick(self, data, phases, *, free=False):
        world = self.world
        able = [
            seat
            for seat in world.live
            if world.ranks[seat].phase in phases
            and not (free and world.ranks[seat].proposal is not None)
        ]
        return data.draw(st.sampled_from(able)) if able else None

    @rule(data=st.data())
    def propose(self, data):
        seat = self.pick(data, PROPOSALS, free=True)
        if seat is not None:
            # Weighted towards going on, so that epochs pass.
            choices = PROPOSALS[self.world.ranks[seat].phase]
            self.world.propose(seat, data.draw(st.sampled_from([*choices, choices[1]])))

    @rule()
    def everyone_agrees(self):
        for seat in self.world.live:
            state = self.world.ranks[seat]
            if state.phase in PROPOSALS and state.proposal is None:
                self.world.propose(seat, PROPOSALS[state.phase][1])

    @rule(data=st.data())
    def drain(self, data):
        seat = self.pick(data, [Phase.DRAINING])
        if seat is not None:
            self.world.drain(seat)

    @precondition(lambda self: self.world.flying)
    @rule(data=st.data(), fate=st.sampled_from(["deliver", "deliver", "deliver", "repeat", "drop"]))
    def message(self, data, fate):
        index = data.draw(st.integers(0, len(self.world.flying) - 1))
        if fate == "drop":
            self.world.flying.pop(index)
        else:
            self.world.deliver(index, keep=fate == "repeat")

    @rule()
    def deliver_all(self):
        for _ in range(len(self.world.flying)):
            self.world.deliver(0)

    @rule(data=st.data())
    def tick(self, data):
        self.world.happen(data.draw(st.sampled_from(self.world.live)), Tick())

    @precondition(lambda self: not self.world.faulty)
    @rule(data=st.data(), sure=st.integers(0, 5))
    def crash(self, data, sure):
        if sure == 0:
            self.world.crash(data.draw(st.sampled_from(self.world.live)))

    @precondition(lambda self: self.world.losses)
    @rule(data=st.data())
    def notice(self, data):
        index = data.draw(st.integers(0, len(self.world.losses) - 1))
        watcher, gone = self.world.losses.pop(index)
        self.world.happen(watcher, Lost(gone))

    @rule(data=st.data(), sure=st.integers(0, 3))
    def expire(self, data, sure):
        waiting = [s for s in self.world.live if self.world.ranks[s].awaited]
        if waiting and sure == 0:
            seat = data.draw(st.sampled_from(waiting))
            self.world.faulty = True
            late = self.world.ranks[seat].awaited[0]
            self.world.happen(seat, Lost(late, "no answer in 30 s"))

    @invariant()
    def nobody_enters_a_request_while_another_is_in_the_last(self):
        world = getattr(self, "world", None)
        if world:
            assert not overlapping(list(world.ranks.values()))

    @invariant()
    def nothing_fails_by_itself(self):
        world = getattr(self, "world", None)
        if world and not world.faulty:
            assert not any(state.phase is FAILED for state in world.ranks.values())

    def teardown(self):
        world = getattr(self, "world", None)
        if world is None:
            return
        for _ in range(6):
            world.settle(admit=False)
        epochs = {state.epoch for state in world.ranks.values()}
        assert world.faulty or len(epochs) == 1, "a rank was left behind, and no request came"
        target = max(epochs) + 2
        for _ in range(40):
            world.settle()
            self.nobody_enters_a_request_while_another_is_in_the_last()
        live = [world.ranks[seat] for seat in world.live]
        if world.faulty:
            assert all(state.phase is FAILED and state.error for state in live)
        else:
            assert all(state.epoch >= target for state in live), "deadlock without a dead peer"


TestSchedules = Schedules.TestCase


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_one_request_goes_through(a, b, data):
    world = World({"a": a, "b": b})
    for _ in range(8):
        world.settle(admit=all(state.epoch == 0 for state in world.ranks.values()))
    assert {state.epoch for state in world.ranks.values()} == {1}
    assert set(world.done.values()) == {Action.ADMIT, Action.RETIRE}
    slow = data.draw(st.sampled_from(world.live))
    world.crash(slow)
    for _ in range(4):
        world.settle(admit=False)
    assert all(world.ranks[seat].error for seat in world.live)
    assert f"{slow.host} lane {slow.lane}" in "".join(
        world.ranks[seat].error or "" for seat in world.live
    )


def test_one_slow_rank_holds_the_whole_host():
    world = World({"a": 3, "b": 1})
    for lane in range(2):
        world.propose(Seat("a", lane), Action.ADMIT)
    while world.flying:
        world.deliver(0)
    assert all(world.ranks[Seat("a", i)].round == 0 for i in range(3))
    assert world.ranks[Seat("a", 0)].awaited == [Seat("a", 2)]
    world.propose(Seat("a", 2), Action.CONTINUE)
    while world.flying:
        world.deliver(0)
    states = [world.ranks[Seat("a", i)] for i in range(3)]
    assert [(s.round, s.phase, s.proposal) for s in states] == [(1, Phase.IDLE, None)] * 3


@pytest.mark.parametrize(
    ("phase", "event"),
    [
        (Phase.IDLE, Propose(Action.RETIRE)),
        (Phase.IDLE, Emptied()),
        (Phase.RUNNING, Propose(Action.ADMIT)),
        (Phase.DRAINED, Propose(Action.CONTINUE)),
        (Phase.DRAINED, Emptied()),
    ],
)
def test_what_a_phase_does_not_admit(phase, event):
    with pytest.raises(LifecycleError, match=f"rank that is {phase}"):
        step(State(seat=Seat("a", 1), hosts={"a": 2}, phase=phase), event)


def test_a_rank_proposes_once_a_round():
    state, _ = step(State(seat=Seat("a", 1), hosts={"a": 2}), Propose(Action.ADMIT))
    with pytest.raises(LifecycleError, match="has this rank's proposal"):
        step(state, Propose(Action.ADMIT))


class Channel:
    """Two ranks of two hosts in one thread: waiting for a message runs the other rank."""

    def __init__(self) -> None:
        self.queues: dict[Seat, deque[Received]] = {}

    def post(self, sender: Seat, to: Seat, message: Message) -> None:
        self.queues.setdefault(to, deque()).append(Received(sender, message))


def test_the_driver_runs_the_same_machine_and_ends_at_its_deadline():
    channel, seats, clock = Channel(), (Seat("a", 0), Seat("b", 0)), [0.0]
    hosts = {"a": 1, "b": 1}

    def make(seat: Seat) -> Lifecycle:
        def receive(timeout: float) -> Received | None:
            if queue := channel.queues.get(seat):
                return queue.popleft()
            clock[0] += timeout
            return None

        def send(to: Seat, message: Message) -> None:
            channel.post(seat, to, message)

        state = State(seat=seat, hosts=hosts)
        return Lifecycle(state, send, receive, deadline_s=5, clock=lambda: clock[0])

    a, b = map(make, seats)
    assert [a.agree(Action.CONTINUE), a.agree(Action.ADMIT), a.agree(Action.RETIRE)] == [
        Action.CONTINUE,
        Action.ADMIT,
        Action.RETIRE,
    ]
    with pytest.raises(Ended, match="b lane 0: no answer in 5 s"):
        a.retire()
    with pytest.raises(Ended, match="b lane 0: no answer in 5 s"):
        b.agree(Action.ADMIT)


@pytest.mark.parametrize("event", [Tick(), Received(Seat("a", 1), Drained(epoch=0))])
def test_whoever_may_not_have_heard_of_a_failure_is_told_again(event):
    failed, _ = step(State(seat=Seat("a", 0), hosts={"a": 2, "b": 1}), Lost(Seat("a", 1)))
    same, told = step(failed, event)
    heard = {Seat("a", 1), Seat("b", 0)} if isinstance(event, Tick) else {Seat("a", 1)}
    assert same == failed
    assert dict(told) == dict.fromkeys(heard, Failed(reason="a lane 1: connection closed"))


class Snapshot(NamedTuple):
    """A whole run at one moment: ranks, messages in flight, losses not yet noticed."""

    ranks: dict[Seat, State]
    flying: tuple[tuple[Seat, Seat, Message], ...] = ()
    losses: tuple[tuple[Seat, Seat], ...] = ()
    crashed: frozenset[Seat] = frozenset()
    drained: frozenset[Seat] = frozenset()

    def key(self) -> str:
        ranks = [repr(state) for state in self.ranks.values()]
        return repr((ranks, sorted(map(repr, self.flying)), self.losses, self.crashed))

    def after(self, seat: Seat, event, **changes) -> Snapshot:
        now = self._replace(**changes)
        if seat in now.crashed:
            return now
        state, sends = step(now.ranks[seat], event)
        flying = (*now.flying, *((seat, to, message) for to, message in sends))
        return now._replace(ranks={**now.ranks, seat: state}, flying=flying)

    def following(self, *, crashes: bool) -> Iterator[Snapshot]:
        """Every moment that may come next."""
        for i, (sender, to, message) in enumerate(self.flying):
            left = self.flying[:i] + self.flying[i + 1 :]
            yield self.after(to, Received(sender, message), flying=left)
        for i, (watcher, gone) in enumerate(self.losses):
            yield self.after(watcher, Lost(gone), losses=self.losses[:i] + self.losses[i + 1 :])
        for seat, state in self.ranks.items():
            if seat in self.crashed or state.epoch:
                continue
            if state.phase is Phase.DRAINING:
                yield self.after(seat, Emptied(), drained=self.drained | {seat})
            elif state.phase in PROPOSALS and state.proposal is None:
                yield self.after(seat, Propose(PROPOSALS[state.phase][1]))
            if crashes and not self.crashed:
                gone = tuple((other, seat) for other in state.neighbours)
                yield self._replace(crashed=frozenset((seat,)), losses=gone)


@pytest.mark.parametrize(
    ("hosts", "crashes"), [({"a": 3, "b": 2}, False), ({"a": 2, "b": 2}, True)]
)
def test_every_schedule_of_one_request(hosts, crashes):
    """All orders of all messages, and a crash of any rank at any moment: none goes wrong."""
    seats = [Seat(host, lane) for host, lanes in hosts.items() for lane in range(lanes)]
    first = Snapshot({seat: State(seat=seat, hosts=hosts) for seat in seats})
    seen, left = {first.key()}, [first]
    while left:
        moment = left.pop()
        states = [state for seat, state in moment.ranks.items() if seat not in moment.crashed]
        assert not overlapping(states)
        assert moment.drained == set(seats) or not any(state.epoch for state in states)
        coming = list(moment.following(crashes=crashes))
        if not list(moment.following(crashes=False)):
            if moment.crashed:
                assert all(state.phase is FAILED for state in states)
            else:
                assert {(state.epoch, state.phase) for state in states} == {(1, Phase.IDLE)}
        for after in coming:
            if (key := after.key()) not in seen:
                seen.add(key)
                left.append(after)
    assert len(seen) > 1000
