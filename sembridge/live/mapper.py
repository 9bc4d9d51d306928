"""From accepted plans to the runtime's switches (§5.1): forward, result, node-local fanout.

Two engines exchange values over a data path and decisions over a result path. A path's switch is
read off its plans' ops and nothing else; a plan that no switch setting would replay is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from sembridge.check import CHECKER
from sembridge.errors import PlanRejected, SemBridgeError
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, AllGather, AnyOp, Broadcast, Part, Plan, Project, Reduce, Send
from sembridge.surfaces import PARAMETERS
from sembridge.verdict import Verdict

Edge = tuple[Obligations, Plan]
"""An edge's obligations and the plan that the checker accepted under them."""


class Inexpressible(SemBridgeError):
    """A legal plan that the runtime's switches cannot replay (exit 1).

    ``edge`` is the contract's name, ``op`` the index of the op to blame, where there is one.
    """

    code = "inexpressible"
    exit_code = 1

    def __init__(self, reason: str, *, edge: str = "", op: int | None = None) -> None:
        self.reason, self.edge, self.op = reason, edge, op
        at = "" if op is None else f" at op {op}"
        super().__init__(f"no runtime switch expresses {edge or 'these plans'}{at}: {reason}")


class Aggregation(StrEnum):
    """How the lanes of one side serve the lanes of the other."""

    MAPPED = "mapped"
    """Each lane sends its whole copy to the lane mapped to it (C1, P0)."""
    SLICES = "slices"
    """Each lane sends one slice; the receivers gather (R0, L0)."""
    REPRESENTATIVE = "representative"
    """One lane serves all: once, and the receiver's native broadcast the others (S0, S1), or,
    where that fanout is off, each of them."""


class Path(Struct, frozen=True, kw_only=True):
    """One path's switch setting, by endpoints of its contracts; no plan or policy is named.

    ``lanes`` are (sender, receiver) in order of the slices, ``fanout`` the lanes that the one
    receiver broadcasts to, ``surface`` what crosses, ``project_at`` where ``projection`` runs.
    """

    aggregation: Aggregation
    lanes: tuple[tuple[str, str], ...]
    fanout: tuple[str, ...] = ()
    surface: str = VALUE
    projection: str | None = None
    project_at: tuple[str, ...] = ()

    def ops(self) -> list[AnyOp]:
        """What a runtime under this setting does in one step, as ops."""
        sliced = self.aggregation is Aggregation.SLICES
        projects: list[AnyOp] = []
        if self.projection is not None:
            projects = [Project(projection=self.projection, at=x) for x in self.project_at]
        transfer: list[AnyOp] = [
            Send(
                src=src,
                dst=dst,
                surface=self.surface,
                part=Part(index=i, of=len(self.lanes)) if sliced else None,
            )
            for i, (src, dst) in enumerate(self.lanes)
        ]
        receivers = tuple(dst for _, dst in self.lanes)
        if sliced:
            transfer.append(AllGather(members=receivers, surface=self.surface))
        if self.fanout:
            transfer.append(Broadcast(src=receivers[0], dsts=self.fanout, surface=self.surface))
        return transfer + projects if self.surface == VALUE else projects + transfer


class Switches(Struct, frozen=True, kw_only=True):
    """The runtime's configuration: one setting for the data path, one for the result path."""

    forward: Path
    result: Path

    @property
    def forward_aggregation(self) -> Aggregation:
        """The first of the paper's three switches; hidden and residual share it."""
        return self.forward.aggregation

    @property
    def result_aggregation(self) -> Aggregation:
        """The second: complete logits by slices, each lane's decision, or the owner's alone."""
        return self.result.aggregation

    @property
    def result_fanout(self) -> bool:
        """The third: whether a native broadcast spreads the decision inside the host."""
        return bool(self.result.fanout)


def map_plans(forward: Sequence[Edge], result: Sequence[Edge]) -> Switches:
    """The switches under which two engines replay the accepted plans.

    Args:
        forward: the edges of the data path (hidden and residual).
        result: the edges that return decisions; there must be exactly one.

    Raises:
        PlanRejected: a plan that the checker does not accept.
        Inexpressible: forward edges that differ in their decision, no or several decision
            returns, more than two domains, or an op that no switch performs.
    """
    if not forward:
        raise Inexpressible("no forward edge")
    if len(result) != 1:
        raise Inexpressible(f"{len(result)} decision-return edges, and not exactly one")
    _check_sides(forward, result)
    paths = [_path(*edge) for edge in forward]
    for path, (ob, _) in zip(paths, forward, strict=True):
        if path.projection is not None:
            raise Inexpressible("the data path projects nothing", edge=ob.contract.name)
        if path != paths[0]:
            raise Inexpressible(
                f"forward edges share one aggregation decision: {_shown(path)} here, "
                f"{_shown(paths[0])} on {forward[0][0].contract.name}",
                edge=ob.contract.name,
            )
    return Switches(forward=paths[0], result=_path(*result[0]))


def _shown(path: Path) -> str:
    return f"{path.aggregation} {', '.join(f'{src}>{dst}' for src, dst in path.lanes)}"


def _check_sides(forward: Sequence[Edge], result: Sequence[Edge]) -> None:
    """Values go from one domain to one other, decisions the way back."""
    sides: tuple[str, str] | None = None
    for edges, back in ((forward, False), (result, True)):
        for ob, _ in edges:
            sources = {ob.domain_of[p] for p in ob.producers}
            targets = {ob.domain_of[c] for c in ob.consumers}
            name = ob.contract.name
            if len(sources) != 1 or len(targets) != 1 or sources == targets:
                raise Inexpressible("the switches drive two engines, one domain each", edge=name)
            ends = (*sources, *targets)
            ends = ends[::-1] if back else ends
            if sides is not None and ends != sides:
                raise Inexpressible(
                    f"not between {' and '.join(sides)}, or in the wrong direction", edge=name
                )
            sides = (ends[0], ends[1])


def _path(ob: Obligations, plan: Plan) -> Path:
    """One edge's setting, once replaying it is seen to perform exactly the plan's ops."""
    report = CHECKER.check_valid(ob, plan)
    if report.verdict is not Verdict.LEGAL:
        raise PlanRejected(plan.contract, report.violations)
    path = _guess(ob, plan)
    replayed = Counter(path.ops())
    for i, op in enumerate(plan.ops):
        if not replayed[op]:
            raise Inexpressible(f"{path.aggregation} lanes do no such {_kind(op)}",
                                edge=plan.contract, op=i)  # fmt: skip
        replayed[op] -= 1
    if missing := next(iter(+replayed), None):
        raise Inexpressible(
            f"{path.aggregation} lanes also {_kind(missing)}: {missing}", edge=plan.contract
        )
    return path


def _kind(op: AnyOp) -> str:
    return str(op.__struct_config__.tag)


def _guess(ob: Obligations, plan: Plan) -> Path:
    """The only setting that could replay the plan."""
    sends = [op for op in plan.ops if isinstance(op, Send)]
    fanouts = [op for op in plan.ops if isinstance(op, Broadcast)]
    projects = [op for op in plan.ops if isinstance(op, Project)]
    for i, op in enumerate(plan.ops):
        if isinstance(op, Reduce):
            raise Inexpressible("reductions are the engine's own", edge=plan.contract, op=i)
        if isinstance(op, Send) and op.surface == PARAMETERS:
            raise Inexpressible("no path carries parameters", edge=plan.contract, op=i)
    lanes = [(op.src, op.dst) for op in sends]
    aggregation = Aggregation.MAPPED
    if any(op.part is not None for op in sends):
        aggregation = Aggregation.SLICES
        lanes = [
            (op.src, op.dst) for op in sorted(sends, key=lambda op: op.part.index if op.part else 0)
        ]
    elif fanouts or any(ob.mapped.get(dst) != src for src, dst in lanes):
        aggregation = Aggregation.REPRESENTATIVE
        if fanouts:
            lanes = lanes[:1]
        elif len({src for src, _ in lanes}) > 1:
            raise Inexpressible("lanes are neither mapped nor one lane's", edge=plan.contract)
    fanout = fanouts[0].dsts if fanouts and aggregation is Aggregation.REPRESENTATIVE else ()
    surface = sends[0].surface
    senders = tuple(dict.fromkeys(src for src, _ in lanes))
    holders = (*(dst for _, dst in lanes), *fanout)
    return Path(
        aggregation=aggregation,
        lanes=tuple(lanes),
        fanout=fanout,
        surface=surface,
        projection=projects[0].projection if projects else None,
        project_at=(holders if surface == VALUE else senders) if projects else (),
    )
