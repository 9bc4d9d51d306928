"""The fault campaign: processes killed, stopped and cut off at every moment of a live run.

Every survivor has to end within its deadline and a second, with an error that says who waited for
whom, on which edge and for which tag; nothing wrong may be delivered, and nothing may be left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from experiments.engine import LIVE, live_installed
from experiments.ledger import Check
from experiments.registry import Result, Settings, Table, Volatile, experiment
from mutations.frames import tallies
from mutations.fuzz import fuzz
from sembridge.errors import BadInput, SemBridgeError
from sembridge.live.faults import RunFailed
from sembridge.live.link import LinkSpec
from sembridge.live.netns import absent, namespaces

DEADLINE_S = 3.0
"""What every wait for a peer is given."""

CONNECT_S = 10.0
STARTING_S = 20.0
"""How long a host may take to load its libraries, before its ranks can connect."""

MARGIN_S = 1.0
OUTSIDE_S = 0.5
"""How long the rank at whose moment a blow comes from outside stands still for it."""

GONE_S = 5.0
"""How long after the run what it left is looked for."""

GROWN_KIB = 128 * 1024
"""By how much a rank may grow over a run with 8 MiB values."""

CONNECTING = "connecting"
LAUNCHER = "launcher"


class Scenario(Struct, frozen=True, kw_only=True):
    """``victim`` (a rank, ``host DOMAIN``, the launcher or the link) suffers ``fate``.

    ``by`` is the rank that meets the ``moment``: itself where it is the victim.
    """

    fate: str
    victim: str
    moment: str
    by: str

    @property
    def name(self) -> str:
        """For tables and tests."""
        return f"{self.victim} {self.fate} {self.moment}"


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a run: each survivor's end, and what was left.

    ``ends`` gives a survivor's error code, ``finished``, ``told`` where it failed before it began,
    or ``ended`` where the launcher ended it; ``unplaced`` are errors that do not say local role,
    peer, edge and tag. ``error`` is the run's own. Seconds are from the fault to the last
    survivor's end, and to the run's.
    """

    error: str
    ends: dict[str, str]
    unplaced: list[str]
    wrong: int
    processes: int
    descriptors: int
    files: int
    grown_kib: int
    survivors_s: float
    run_s: float


def scenarios() -> Iterator[Scenario]:
    """Every fault, at every moment that its victim comes to."""
    from experiments.sabotage import IDLE, RANKS, RECEIVER, SENDER

    moments = {
        IDLE: RANKS,
        "before a send": (SENDER,),
        "within a send": (SENDER,),
        "after a send": (SENDER,),
        "within a receive": (RECEIVER,),
        "in a collective": RANKS,
        "in a projection": (SENDER,),
    }
    for fate in ("killed", "stopped"):
        for rank in RANKS:
            yield Scenario(fate=fate, victim=rank, moment=CONNECTING, by=rank)
        for moment, ranks in moments.items():
            for rank in ranks:
                yield Scenario(fate=fate, victim=rank, moment=moment, by=rank)
    for host in ("head", "tail"):
        for moment in (CONNECTING, IDLE, "within a send", "in a collective"):
            yield Scenario(fate="killed", victim=f"host {host}", moment=moment, by=SENDER)
    for moment in (CONNECTING, IDLE, "within a send", "in a collective"):
        yield Scenario(fate="killed", victim=LAUNCHER, moment=moment, by=SENDER)
    for moment in (IDLE, "within a send", "within a receive"):
        by = RECEIVER if moment == "within a receive" else SENDER
        yield Scenario(fate="cut", victim="link", moment=moment, by=by)


# One run ----------------------------------------------------------------------------------------


class _Watch:
    """Follows a run's events, and strikes from outside where the victim is no rank."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.hosts: dict[str, int] = {}
        self.fault: float | None = None
        self.ends: dict[str, dict[str, Any]] = {}
        self.wrong = 0
        self.cut: Any = None
        self._thread: Thread | None = None

    def started(self, hosts: dict[str, int]) -> None:
        self.hosts |= hosts
        if self.scenario.moment == CONNECTING and self.scenario.victim != LAUNCHER:
            self._thread = Thread(target=self._while_connecting)
            self._thread.start()

    def heard(self, rank: str, event: dict[str, Any]) -> None:
        if "fault" in event and self.fault is None:
            self.fault = event["fault"]
            self._strike()
        elif "ended" in event:
            self.ends.setdefault(rank, event)
        self.wrong += "wrong" in event

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _strike(self) -> None:
        kind, _, domain = self.scenario.victim.partition(" ")
        if kind == "host":
            os.kill(self.hosts[domain], signal.SIGKILL)
        elif kind == "link":
            self.cut()

    def _while_connecting(self) -> None:
        """Hold one host back, so that the other's ranks wait, and strike then."""
        kind, _, domain = self.scenario.victim.partition(" ")
        domain = domain or kind.partition("/")[0]
        other = next(pid for name, pid in self.hosts.items() if name != domain)
        with suppress(ProcessLookupError):
            os.kill(other, signal.SIGSTOP)
            pid = self.hosts[domain] if kind == "host" else self._lane(kind)
            self.fault = monotonic()
            os.kill(pid, signal.SIGSTOP if self.scenario.fate == "stopped" else signal.SIGKILL)
            sleep(0.2)
            os.kill(other, signal.SIGCONT)

    def _lane(self, rank: str) -> int:
        """The process of a rank, once its host has forked all of them and they had time to wait."""
        domain, _, lane = rank.partition("/")
        while len(children := _children(self.hosts[domain])) < 2:
            sleep(0.01)
        sleep(0.2)
        return children[int(lane)]


def run(scenario: Scenario) -> Outcome:
    """Launch the ranks, let the fault happen, and see what becomes of everybody.

    Raises:
        BadInput: a link that is to be cut cannot be made here.
    """
    if scenario.victim == LAUNCHER:
        return _kill_launcher(scenario)
    watch, error = _Watch(scenario), ""
    told: dict[str, str] = {}
    before = _descriptors()
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir, kept = folder, tempfile.tempdir
        try:
            _launch(scenario, watch)
        except SemBridgeError as caught:
            if isinstance(caught, BadInput):
                raise
            error = caught.code
            told = caught.errors if isinstance(caught, RunFailed) else {}
        finally:
            ended = monotonic()
            tempfile.tempdir = kept
            watch.close()
        files = len(list(Path(folder).iterdir()))
    outcome = _outcome(scenario, watch, error, ended, files, _descriptors() - before)
    ends = {r: "told" if e == "ended" and r in told else e for r, e in outcome.ends.items()}
    return replace(outcome, ends=ends)


def _launch(scenario: Scenario, watch: _Watch) -> None:
    from sembridge.live.launch import Side, launch
    from sembridge.live.probe import sides_of

    with ExitStack() as stack:
        sides = [Side(domain="head", lanes=2), Side(domain="tail", lanes=2)]
        link = LinkSpec(rate_bit_s=1e9)
        if scenario.victim == "link":
            ends = stack.enter_context(namespaces(1e9))
            sides, link, watch.cut = sides_of(ends, "head", "tail", 2), LinkSpec(), ends.cut
        launch(
            sides,
            "experiments.sabotage:task",
            {
                "victim": scenario.by,
                "moment": scenario.moment,
                "fate": scenario.fate if scenario.victim == scenario.by else "outside",
            },
            op_deadline_s=DEADLINE_S,
            connect_s=CONNECT_S,
            link=link,
            on_start=watch.started,
            on_event=watch.heard,
        )


def _outcome(
    scenario: Scenario, watch: _Watch, error: str, ended: float, files: int, descriptors: int
) -> Outcome:
    from experiments.sabotage import RANKS

    dead = {scenario.victim}
    if scenario.victim.startswith("host "):
        dead = {r for r in RANKS if r.startswith(scenario.victim.removeprefix("host "))}
    survivors = [r for r in RANKS if r not in dead]
    fault = ended if watch.fault is None else watch.fault
    ends: dict[str, str] = {}
    unplaced: list[str] = []
    for rank in survivors:
        said = watch.ends.get(rank)
        ends[rank] = "ended" if said is None else said["ended"]["code"]
        if said is not None and ends[rank] != "finished" and not _placed(said["ended"]):
            unplaced.append(rank)
    told = [watch.ends[r] for r in survivors if r in watch.ends]
    return Outcome(
        error=error if watch.fault is not None else "no fault",
        ends=ends,
        unplaced=unplaced,
        wrong=watch.wrong,
        processes=_left(watch.hosts.values()),
        descriptors=descriptors,
        files=files,
        grown_kib=max((e["grown_kib"] for e in told), default=0),
        survivors_s=max((e["at"] - fault for e in told), default=0.0),
        run_s=ended - fault,
    )


def _placed(ended: dict[str, Any]) -> bool:
    return bool(ended["local"] and ended["peer"] and ended["edge"] is not None and ended["tag"])


LAUNCHED = """
import json, sys
from experiments.faults import Scenario, _launch, _Watch
class Watch(_Watch):
    def started(self, hosts):
        print(json.dumps({"hosts": hosts}), flush=True)
    def heard(self, rank, event):
        print(json.dumps(event), flush=True)
_launch(Scenario(**json.loads(sys.argv[1])), Watch(None))
"""


def _kill_launcher(scenario: Scenario) -> Outcome:
    """As :func:`run`, with the launcher in a process of its own, which is killed."""
    watch = _Watch(scenario)
    with tempfile.TemporaryDirectory() as folder:
        fields = {f: getattr(scenario, f) for f in scenario.__struct_fields__}
        launcher = subprocess.Popen(
            [sys.executable, "-c", LAUNCHED, json.dumps(fields)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ
            | {"TMPDIR": folder, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert launcher.stdout is not None
        try:
            for line in launcher.stdout:
                said = json.loads(line)
                watch.hosts |= said.get("hosts", {})
                if scenario.moment == CONNECTING and watch.hosts:
                    sleep(1.0)
                    break
                if "fault" in said:
                    break
        finally:
            launcher.kill()
            launcher.wait()
            launcher.stdout.close()
        fault = monotonic()
        processes = _left(watch.hosts.values())
        ended = monotonic()
        files = len(list(Path(folder).iterdir()))
    return Outcome(
        error="launcher killed",
        ends={},
        unplaced=[],
        wrong=watch.wrong,
        processes=processes,
        descriptors=0,
        files=files,
        grown_kib=0,
        survivors_s=ended - fault,
        run_s=ended - fault,
    )


# What is left -----------------------------------------------------------------------------------


def _stat(pid: int) -> tuple[str, int, int]:
    """State, parent and session of a process; nothing where it is gone."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return ("Z", 0, 0)
    state, parent, _, session = stat.rpartition(")")[2].split()[:4]
    return state, int(parent), int(session)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _children(pid: int) -> list[int]:
    return sorted(p for p in _processes() if _stat(p)[1] == pid)


def _left(sessions: Any) -> int:
    """Processes of the hosts' sessions that do not go away; their sockets go with them."""
    until, wanted = monotonic() + GONE_S, set(sessions)
    while True:
        alive = sum(s in wanted and state != "Z" for state, _, s in map(_stat, _processes()))
        if not alive or monotonic() > until:
            return alive
        sleep(0.02)


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# All of them ------------------------------------------------------------------------------------


def allowed_s(scenario: Scenario) -> float:
    """How long after the fault the last survivor may end."""
    wait = STARTING_S + CONNECT_S if scenario.moment == CONNECTING else DEADLINE_S
    return wait + MARGIN_S + (0 if scenario.victim == scenario.by else OUTSIDE_S)


def faults_of(scenario: Scenario, outcome: Outcome) -> list[str]:
    """What is wrong with an outcome, in words; nothing where all is as it should be."""
    found = [f"{rank}'s error is not placed" for rank in outcome.unplaced]
    if scenario.moment == CONNECTING:
        found = []  # no edge and no tag is known before a rank is connected
    if outcome.error in ("", "no fault"):
        found.append(outcome.error or "the run did not fail")
    if outcome.wrong:
        found.append(f"{outcome.wrong} wrong values")
    if outcome.survivors_s > allowed_s(scenario):
        found.append(f"a survivor ended after {outcome.survivors_s:.1f} s")
    if outcome.run_s > allowed_s(scenario) + MARGIN_S:
        found.append(f"the run ended after {outcome.run_s:.1f} s")
    for what in ("processes", "descriptors", "files"):
        if (left := getattr(outcome, what)) > 0:
            found.append(f"{left} {what} left")
    if outcome.grown_kib > GROWN_KIB:
        found.append(f"a rank grew by {outcome.grown_kib} KiB")
    return found


@experiment(
    "faults", "Frames, ranks, hosts, launcher and link fail in every way (§5.2)", quick=False
)
def faults(settings: Settings) -> Result:
    """Spoil frames and handshakes, fuzz a receiver, and let processes fail at every moment."""
    how = (
        "frames and handshakes against a real receiver; then launched processes on gloo, two plans "
        "in turn (completed sum, owner's tokens; 8 MiB representative) at 1 Gbit/s, signals at "
        f"named moments; a wait for a peer has {DEADLINE_S:g} s, connecting {CONNECT_S:g} s"
    )
    if not live_installed():
        return Result(name="faults", how=how, not_run=LIVE)
    mutants, fuzzed = tallies(), fuzz(seed=settings.seed)
    reason = absent()
    rows: list[tuple[Any, ...]] = []
    records: list[dict[str, Any]] = []
    amiss: list[str] = []
    chosen = [s for s in scenarios() if reason is None or s.victim != "link"]
    for done, scenario in enumerate(chosen):
        if settings.progress:
            settings.progress(done, len(chosen), scenario.name)
        outcome = run(scenario)
        wrong = faults_of(scenario, outcome)
        amiss += [f"{scenario.name}: {text}" for text in wrong[:1]]
        ends = Counter(outcome.ends.values())
        said = ", ".join(f"{code} {n}" for code, n in sorted(ends.items()))
        record = {
            "victim": scenario.victim,
            "fate": scenario.fate,
            "moment": scenario.moment,
            "error": outcome.error,
            "survivors": said,
            "survivors_s": round(outcome.survivors_s, 2),
            "run_s": round(outcome.run_s, 2),
            "wrong": outcome.wrong,
            "left": outcome.processes + outcome.descriptors + outcome.files,
            "grown_kib": outcome.grown_kib,
            "amiss": "; ".join(wrong),
        }
        records.append(record)
        rows.append(tuple(record.values()))
    return Result(
        name="faults",
        how=how,
        checks=(
            _none("mutants of frames and handshakes not refused", sum(t.amiss for t in mutants)),
            _none(f"corrupt streams of {fuzzed.streams} that deliver anything wrong", fuzzed.wrong),
            _none("corrupt streams that outlast their deadline", fuzzed.late),
            _none("threads and descriptors they leave", fuzzed.threads + fuzzed.descriptors),
            _none("scenarios in which anything is amiss", len(amiss), "; ".join(amiss)),
        ),
        tables=(
            Table(
                title="Frames and handshakes",
                columns=("mutant", "what is wrong", "made", "refused for"),
                rows=tuple(
                    (t.mutant.name, t.mutant.says, t.made, _counted(t.reasons)) for t in mutants
                ),
            ),
            Table(
                title=f"{fuzzed.streams} corrupt streams",
                columns=("ended for", "streams"),
                rows=tuple(fuzzed.reasons.items()),
                note="Intact are those that were damaged after the last frame that was due.",
            ),
            _injected(),
        ),
        volatile=Volatile(
            tables=(
                Table(
                    title="What became of the survivors",
                    columns=tuple(records[0]),
                    rows=tuple(rows),
                    note="Seconds are after the fault; ended are survivors that had nobody to wait "
                    "for, or were still connecting, when the launcher ended the run.",
                ),
            ),
            records=tuple(records),
            notes={"fuzz_peak_bytes": fuzzed.peak_bytes, "no_link_cut": reason or ""},
        ),
    )


def _none(name: str, ours: int, note: str = "") -> Check:
    return Check(name=name, where="§5.2", ours=ours, expected=0, note=note)


def _counted(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in reasons.items())


def _injected() -> Table:
    kinds = {
        "head": "a rank",
        "tail": "a rank",
        "host": "a host process",
        "launcher": "the launcher",
    }
    counts = Counter(
        (kinds.get(s.victim.partition("/")[0].partition(" ")[0], "the link"), s.fate, s.moment)
        for s in scenarios()
    )
    return Table(
        title="Faults of processes and of the link",
        columns=("victim", "fate", "moment", "runs"),
        rows=tuple((*key, n) for key, n in counts.items()),
    )
