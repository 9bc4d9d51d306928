"""Request lifecycle (§5.2, §5.4): continue, admit and retire, drain, acknowledgement, epochs.

A pure state machine, one state per rank: an event goes in, a new state and messages come out.
Whatever carries the messages runs it; messages may be lost, repeated and reordered, since a rank
that waits says the same again on :class:`Tick`, and every message names its round or epoch.

    idle --admit--> running --retire--> draining --drained--> drained --advance--> idle, epoch + 1

The ranks of a host agree first: what all propose in a round happens, and anything else is
"continue". A host acknowledges retirement once all its ranks have drained; the epoch advances
once every host has. So no rank enters a request while another is in the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from sembridge.errors import SemBridgeError
from sembridge.live.faults import LiveError


class LifecycleError(SemBridgeError):
    """An event that the rank's phase does not admit: a defect of the caller."""

    code = "lifecycle"


class Action(StrEnum):
    """What ranks agree on before each step."""

    CONTINUE = "continue"
    ADMIT = "admit"
    RETIRE = "retire"


class Phase(StrEnum):
    """Where a rank stands in its epoch."""

    IDLE = "idle"
    RUNNING = "running"
    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"


PROPOSALS = {
    Phase.IDLE: (Action.CONTINUE, Action.ADMIT),
    Phase.RUNNING: (Action.CONTINUE, Action.RETIRE),
}
"""What a rank may propose in a phase; in the others it proposes nothing."""

ENTERS = {Action.ADMIT: Phase.RUNNING, Action.RETIRE: Phase.DRAINING}


class Seat(Struct, frozen=True, order=True):
    """One rank's place: its host (one native domain) and its lane there. Lane 0 leads."""

    host: str
    lane: int


class Proposal(Struct, frozen=True, kw_only=True, tag_field="type", tag="proposal"):
    """A rank to its leader: what it wants of a round."""

    round: int
    action: Action


class Agreed(Struct, frozen=True, kw_only=True, tag_field="type", tag="agreed"):
    """A leader to its ranks: what a round does."""

    round: int
    action: Action


class Drained(Struct, frozen=True, kw_only=True, tag_field="type", tag="drained"):
    """A rank to its leader: its collective slot of an epoch is empty."""

    epoch: int


class Retired(Struct, frozen=True, kw_only=True, tag_field="type", tag="retired"):
    """A leader to another: every rank of its host has drained. An answer is never answered."""

    epoch: int
    answer: bool = False


class Advance(Struct, frozen=True, kw_only=True, tag_field="type", tag="advance"):
    """A leader to its ranks: every host has retired what came before ``epoch``."""

    epoch: int


class Failed(Struct, frozen=True, kw_only=True, tag_field="type", tag="failed"):
    """Anyone to anyone: the run is over, and why."""

    reason: str


Message = Proposal | Agreed | Drained | Retired | Advance | Failed


class Propose(Struct, frozen=True):
    """The rank's own engine wants this of the next round."""

    action: Action


class Emptied(Struct, frozen=True):
    """The rank's own engine has finished its last collective of the epoch."""


class Received(Struct, frozen=True):
    """A message arrived from a seat."""

    sender: Seat
    message: Message


class Tick(Struct, frozen=True):
    """Time to repeat what may have been lost."""


class Lost(Struct, frozen=True):
    """A seat's connection closed, or it said nothing before the deadline."""

    seat: Seat
    why: str = "connection closed"


Event = Propose | Emptied | Received | Tick | Lost
Sends = tuple[tuple[Seat, Message], ...]


class State(Struct, frozen=True, kw_only=True):
    """One rank's lifecycle; ``hosts`` maps each host to its number of lanes.

    ``round`` counts agreements since the start. ``proposal`` is this rank's, until agreed.
    A leader also keeps ``proposals`` of the round and ``drained`` of the epoch by lane, ``last``
    (its latest agreement, for ranks that missed it), and ``retired``, the latest epoch that
    each other host acknowledged.
    """

    seat: Seat
    hosts: dict[str, int]
    phase: Phase = Phase.IDLE
    epoch: int = 0
    round: int = 0
    proposal: Action | None = None
    proposals: dict[int, Action] = {}
    drained: frozenset[int] = frozenset()
    last: Agreed | None = None
    retired: dict[str, int] = {}
    error: str | None = None

    @property
    def leader(self) -> Seat:
        """The rank that this one's host agrees through."""
        return Seat(self.seat.host, 0)

    @property
    def leads(self) -> bool:
        """Whether this rank is it."""
        return self.seat.lane == 0

    @property
    def locals(self) -> list[Seat]:
        """The other ranks of the host."""
        host, lane = self.seat.host, self.seat.lane
        return [Seat(host, i) for i in range(self.hosts[host]) if i != lane]

    @property
    def neighbours(self) -> list[Seat]:
        """Whom this rank exchanges messages with, and whose loss it is told of."""
        if not self.leads:
            return [self.leader]
        return self.locals + [Seat(host, 0) for host in self.hosts if host != self.seat.host]

    @property
    def awaited(self) -> list[Seat]:
        """Who has to speak before this rank goes on; a deadline should run while anyone has."""
        drained = self.phase is Phase.DRAINED
        if self.proposal is None and not drained:
            return []
        if not self.leads:
            return [self.leader]
        heard = self.drained if drained else self.proposals
        if missing := [seat for seat in self.locals if seat.lane not in heard]:
            return missing
        return [Seat(host, 0) for host in self.unretired]

    @property
    def unretired(self) -> list[str]:
        """The other hosts that have not acknowledged this epoch, or a later one."""
        others = (host for host in self.hosts if host != self.seat.host)
        return [host for host in others if self.retired.get(host, -1) < self.epoch]


Step = tuple[State, Sends]


def step(state: State, event: Event) -> Step:
    """The state after ``event``, and what to send.

    Raises:
        LifecycleError: a proposal or a drain that the phase does not admit.
    """
    if state.phase is Phase.FAILED:
        return _after_failure(state, event)
    match event:
        case Propose(action):
            return _propose(state, action)
        case Emptied():
            return _emptied(state)
        case Lost(seat, why):
            return fail(state, f"{seat.host} lane {seat.lane}: {why}")
        case Tick():
            return state, _repeated(state)
        case Received(sender, message):
            if isinstance(message, Failed):
                return fail(state, message.reason)
            if state.leads:
                return _lead(state, sender, message)
            return _follow(state, message)


def fail(state: State, reason: str) -> Step:
    """End the run here and tell every neighbour; the first reason is the one that stays."""
    if state.phase is Phase.FAILED:
        return state, ()
    message = Failed(reason=reason)
    failed = replace(state, phase=Phase.FAILED, proposal=None, error=reason)
    return failed, tuple((seat, message) for seat in state.neighbours)


def _after_failure(state: State, event: Event) -> Step:
    """Whoever still speaks or may not have heard is told again; nothing else happens."""
    told = Failed(reason=state.error or "failed")
    if isinstance(event, Tick):
        return state, tuple((seat, told) for seat in state.neighbours)
    if isinstance(event, Received) and not isinstance(event.message, Failed):
        return state, ((event.sender, told),)
    return state, ()


def _propose(state: State, action: Action) -> Step:
    if action not in PROPOSALS.get(state.phase, ()):
        raise LifecycleError(f"{action} is no proposal of a rank that is {state.phase}")
    if state.proposal is not None:
        raise LifecycleError(f"round {state.round} has this rank's proposal: {state.proposal}")
    state = replace(state, proposal=action)
    proposal = Proposal(round=state.round, action=action)
    if state.leads:
        return _lead(state, state.seat, proposal)
    return state, ((state.leader, proposal),)


def _emptied(state: State) -> Step:
    if state.phase is not Phase.DRAINING:
        raise LifecycleError(f"nothing to drain in a rank that is {state.phase}")
    state, drained = replace(state, phase=Phase.DRAINED), Drained(epoch=state.epoch)
    if state.leads:
        return _lead(state, state.seat, drained)
    return state, ((state.leader, drained),)


def _repeated(state: State) -> Sends:
    """What this rank said last and has not seen answered."""
    found: list[tuple[Seat, Message]] = []
    if state.leads:
        if _host_drained(state):
            found += _to_hosts(state, Retired(epoch=state.epoch))
    elif state.proposal is not None:
        found.append((state.leader, Proposal(round=state.round, action=state.proposal)))
    elif state.phase is Phase.DRAINED:
        found.append((state.leader, Drained(epoch=state.epoch)))
    return tuple(found)


def _agree(state: State, agreed: Agreed) -> State:
    """Apply an agreement of this rank's round."""
    return replace(
        state,
        round=state.round + 1,
        proposal=None,
        phase=ENTERS.get(agreed.action, state.phase),
    )


def _advance(state: State, epoch: int) -> State:
    return replace(state, epoch=epoch, phase=Phase.IDLE, drained=frozenset())


def _follow(state: State, message: Message) -> Step:
    """A rank hears its leader; what it knows already changes nothing."""
    match message:
        case Agreed() if message.round == state.round and state.proposal is not None:
            return _agree(state, message), ()
        case Advance(epoch=epoch) if epoch == state.epoch + 1 and state.phase is Phase.DRAINED:
            return _advance(state, epoch), ()
        case _:
            return state, ()


def _lead(state: State, sender: Seat, message: Message) -> Step:
    """A leader hears a rank of its host (or itself), or another leader."""
    local = sender.host == state.seat.host
    match message:
        case Proposal(round=asked) if local and asked == state.round:
            proposals = {**state.proposals, sender.lane: message.action}
            return _decide(replace(state, proposals=proposals))
        case Proposal() if local and state.last is not None:
            # A rank that missed the last agreement is told again; older ones are echoes.
            missed = message.round == state.last.round
            return state, ((sender, state.last),) if missed else ()
        case Drained(epoch=epoch) if local and epoch == state.epoch:
            before = _host_drained(state)
            state = replace(state, drained=state.drained | {sender.lane})
            if before or not _host_drained(state):
                return state, ()
            told = _to_hosts(state, Retired(epoch=state.epoch))
            return _complete(state, told)
        case Drained(epoch=epoch) if local and epoch == state.epoch - 1:
            return state, ((sender, Advance(epoch=state.epoch)),)
        case Retired(epoch=epoch) if not local:
            latest = max(epoch, state.retired.get(sender.host, -1))
            state = replace(state, retired={**state.retired, sender.host: latest})
            behind = epoch < state.epoch and not message.answer
            answer = ((sender, Retired(epoch=state.epoch - 1, answer=True)),) if behind else ()
            return _complete(state, answer)
        case _:
            return state, ()


def _decide(state: State) -> Step:
    """Once every rank has proposed: what all want, or else to continue."""
    if len(state.proposals) < state.hosts[state.seat.host]:
        return state, ()
    wanted = set(state.proposals.values())
    action = wanted.pop() if len(wanted) == 1 else Action.CONTINUE
    agreed = Agreed(round=state.round, action=action)
    state = replace(_agree(state, agreed), last=agreed, proposals={})
    return state, tuple((seat, agreed) for seat in state.locals)


def _host_drained(state: State) -> bool:
    return len(state.drained) == state.hosts[state.seat.host]


def _to_hosts(state: State, message: Message) -> Sends:
    return tuple((seat, message) for seat in state.neighbours if seat.host != state.seat.host)


def _complete(state: State, sends: Sends) -> Step:
    """Advance the epoch if this host has drained and every other has acknowledged that it has.

    Another host's acknowledgement of a later epoch covers this one.
    """
    if not _host_drained(state) or state.unretired:
        return state, sends
    advance = Advance(epoch=state.epoch + 1)
    state = _advance(state, state.epoch + 1)
    return state, (*sends, *((seat, advance) for seat in state.locals))


class Lifecycle:
    """One rank's state machine on a real channel: ``send`` posts, ``receive`` waits.

    ``receive(timeout)`` gives (sender, message), or None where nothing came in ``timeout``
    seconds; a loss that the channel sees is given as :class:`Lost`. A rank that waits longer
    than ``deadline_s`` fails, and so does everyone that it can tell.
    """

    def __init__(
        self,
        state: State,
        send: Callable[[Seat, Message], None],
        receive: Callable[[float], Received | Lost | None],
        *,
        deadline_s: float = 30.0,
        repeat_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state, self._send, self._receive = state, send, receive
        self._deadline, self._repeat = deadline_s, repeat_s
        self._clock = clock

    def agree(self, action: Action) -> Action:
        """Propose, wait for the host's ranks, and say what they do.

        Raises:
            Ended: a rank or host was lost, or the deadline passed.
        """
        self._hear()
        before = self.state.phase
        self._do(Propose(action))
        self._wait(lambda s: s.proposal is None)
        after = self.state.phase
        return Action.CONTINUE if after is before else action

    def retire(self) -> int:
        """Say that this rank has drained, wait for all others, and give the new epoch.

        Raises:
            Ended: as :meth:`agree`.
        """
        self._hear()
        epoch = self.state.epoch
        self._do(Emptied())
        self._wait(lambda s: s.epoch > epoch)
        return self.state.epoch

    def fail(self, reason: str) -> None:
        """Tell everyone that this rank cannot go on."""
        self.state, sends = fail(self.state, reason)
        for seat, message in sends:
            self._send(seat, message)

    def _do(self, event: Event) -> None:
        self.state, sends = step(self.state, event)
        for seat, message in sends:
            self._send(seat, message)

    def _hear(self) -> None:
        """Take in what has arrived, so that a failure elsewhere ends this rank's next step."""
        while event := self._receive(0.0):
            self._do(event)
        if self.state.error is not None:
            raise Ended(self.state.error)

    def _wait(self, done: Callable[[State], bool]) -> None:
        end = self._clock() + self._deadline
        while not done(self.state) and self.state.error is None:
            left = end - self._clock()
            if left <= 0:
                self._do(Lost(self.state.awaited[0], f"no answer in {self._deadline:g} s"))
                break
            self._do(self._receive(min(left, self._repeat)) or Tick())
        if self.state.error is not None:
            raise Ended(self.state.error)


class Ended(LiveError):
    """The run is over before its work was: a peer died, closed, or kept silent."""

    code = "ended"
