"""From serving requests to one live run of two engines, and what it showed (§5.1, §6.3).

Each request becomes a surface, contracts, checked plans and switches before anything starts; the
engines get contracts and switches. Afterwards what every consumer saw is held against the unsplit
model, and what every lane sent against the plans' wire accounting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sembridge.contract import Stack
from sembridge.errors import BadInput
from sembridge.live.backends import backend
from sembridge.live.launch import Outcome, Side, launch
from sembridge.live.link import LinkSpec
from sembridge.live.mapper import Switches, map_plans
from sembridge.live.netns import Namespaces
from sembridge.live.parts import CONFIG, Generated, check_lanes, read_config, torch
from sembridge.live.serve import (
    EDGES,
    HEAD,
    TAIL,
    Crossing,
    Orders,
    Program,
    Request,
    Seen,
)
from sembridge.lowering import lower_valid
from sembridge.models import Deployment, ModelFacts, model_edges, read_model, result_edge
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import Plan
from sembridge.serving.surface import Api, Decision, decide, serve
from sembridge.surfaces import Logprobs, Surface, Tokens, observed
from sembridge.wire import Framed, framed

NOTHING = Framed(frames=0, payload=0, framed=0)
TOLERANCE = 1e-3
"""Of log-probabilities against the unsplit model's: tensor-parallel sums round differently."""


class Ask(Struct, frozen=True, kw_only=True):
    """A serving request for a batch of tokenized prompts of one length.

    ``owner`` is the tail's rank that the scheduler lets issue the decision, where it names one;
    ``own`` lets the kit's further surfaces serve, where the paper's contract keeps complete logits.
    """

    id: str
    body: dict[str, Any]
    api: Api = "vllm"
    prompts: tuple[tuple[int, ...], ...]
    steps: int
    stop: tuple[int, ...] = ()
    owner: int | None = None
    own: bool = False


class Planned(Struct, frozen=True, kw_only=True):
    """A request and all that is decided of it before it runs.

    ``plans`` are the accepted ones of the first and of each further step, by edge.
    """

    ask: Ask
    decision: Decision
    surface: Surface
    switches: tuple[Switches, Switches]
    plans: tuple[dict[str, Plan], dict[str, Plan]]
    per_step: tuple[dict[str, Framed], dict[str, Framed]]
    request: Request

    def wire(self, steps: int) -> dict[str, Framed]:
        """What the plans say that ``steps`` steps put on each edge, over all lanes."""
        first, then = self.per_step
        return {edge: sum([then[edge]] * (steps - 1), start=first[edge]) for edge in EDGES}


class Site(Struct, frozen=True, kw_only=True):
    """Where a run takes place: lanes of each side, the sides' backends, and the link.

    ``link`` is emulated; ``namespaces`` are two ends that the kernel joins, loopback without.
    """

    tp: int
    head: str = "gloo"
    tail: str = "gloo"
    cut: int | None = None
    link: LinkSpec = LinkSpec()
    namespaces: Namespaces | None = None
    deadline_s: float = 600.0
    op_deadline_s: float = 120.0


def sides(site: Site, lanes: int) -> list[Side]:
    """The two domains of a run, with so many lanes each."""
    made = [
        Side(domain=HEAD, lanes=lanes, backend=site.head),
        Side(domain=TAIL, lanes=lanes, backend=site.tail),
    ]
    if site.namespaces is None:
        return made
    ends = (site.namespaces.near, site.namespaces.far)
    return [
        replace(side, namespace=end.namespace, host=end.host, port=end.port)
        for side, end in zip(made, ends, strict=True)
    ]


def facts_of(folder: Path) -> ModelFacts:
    """What the edges need of a saved model (:func:`sembridge.live.parts.save`)."""
    return read_model(json.loads((folder / CONFIG).read_text()), dtype="float32")


def _surface(ask: Ask, decision: Decision) -> Surface:
    """What the request's consumers observe: the paper's contract, or the kit's registry."""
    if ask.own:
        surface = serve(decision.need)
        if surface.projected is not None and not surface.projected.choices:
            return surface
    elif decision.paper_surface in ("tokens", "logprobs"):
        return Tokens() if decision.paper_surface == "tokens" else Logprobs()
    raise BadInput(
        f"the live engines decode greedily, and this request needs {decision.surface} "
        f"({', '.join(decision.decided_by)})",
        path=f"$.{decision.decided_by[0]}",
    )


def plan(model: ModelFacts, site: Site, ask: Ask) -> Planned:
    """Request to surface to contracts to checked plans to switches.

    Raises:
        BadInput: a request that is malformed or not decoded greedily, prompts of several lengths.
        Inexpressible: plans that the switches do not express.
    """
    decision = decide(ask.body, api=ask.api)
    surface = _surface(ask, decision)
    rows, lengths = len(ask.prompts), {len(p) for p in ask.prompts}
    if len(lengths) != 1 or 0 in lengths or ask.steps < 1:
        raise BadInput("prompts of one batch have one length, and at least one token is asked for")
    steps = [_step(model, site, surface, ask.owner, rows * n, rows) for n in (lengths.pop(), 1)]
    programs = [
        Program(
            **{
                name: Crossing(
                    contract=ob.contract,
                    switch=switches.result if name == "result" else switches.forward,
                )
                for name, (ob, _) in edges.items()
            }
        )
        for edges, switches in steps
    ]
    (first, one), (then, two) = steps
    return Planned(
        ask=ask,
        decision=decision,
        surface=surface,
        switches=(one, two),
        plans=({n: p for n, (_, p) in first.items()}, {n: p for n, (_, p) in then.items()}),
        per_step=(_wire(first), _wire(then)),
        request=Request(
            id=ask.id,
            prompts=ask.prompts,
            steps=ask.steps,
            stop=ask.stop,
            first=programs[0],
            then=programs[1],
        ),
    )


Edges = dict[str, tuple[Obligations, Plan]]


def _step(
    model: ModelFacts, site: Site, surface: Surface, owner: int | None, positions: int, rows: int
) -> tuple[Edges, Switches]:
    """The edges of a step over so many positions that decides so many rows."""

    def deployed(rows: int) -> Deployment:
        stacks: dict[str, Stack] = {HEAD: _stack(site.head), TAIL: _stack(site.tail)}
        return Deployment(
            tp=site.tp,
            rows=rows,
            owner=owner,
            cut=site.cut,
            head=(HEAD, stacks[HEAD]),
            tail=(TAIL, stacks[TAIL]),
        )

    named = model_edges(model, deployed(positions))
    named["result"] = result_edge(model, deployed(rows), surface)
    obligations = {name: resolve_valid(named[name].contract()) for name in EDGES}
    edges = {name: (ob, lower_valid(ob)[0]) for name, ob in obligations.items()}
    return edges, map_plans([edges["hidden"], edges["residual"]], [edges["result"]])


def _stack(name: str) -> Stack:
    stack: Any = backend(name).stack
    return stack


def _wire(edges: Edges) -> dict[str, Framed]:
    return {name: framed(ob, plan.ops) for name, (ob, plan) in edges.items()}


# the run ----------------------------------------------------------------------------------------


class Served(Struct, frozen=True, kw_only=True):
    """What one request showed: bytes of each edge beside the plans', and consumers that match.

    A consumer is one head lane at one step; it ``matched`` where its tokens are the unsplit
    model's and, where it held complete logits, those are a tail lane's bit for bit and their
    log-probabilities the unsplit model's within ``TOLERANCE``. ``senders`` are the tail's lanes
    that sent a result.
    """

    id: str
    surface: str
    tokens: list[list[int]]
    logprobs: list[list[float]]
    steps: int
    epoch: int
    sent: dict[str, Framed]
    wire: dict[str, Framed]
    senders: tuple[int, ...]
    matched: int
    consumers: int
    largest_logprob_error: float

    @property
    def holds(self) -> bool:
        """Whether every consumer matched and every byte is the plans'."""
        return self.matched == self.consumers and self.sent == self.wire


def run(
    folder: Path,
    site: Site,
    planned: Sequence[Planned],
    *,
    on_event: Callable[[str, dict[str, Any]], None] = lambda rank, event: None,
    on_start: Callable[[dict[str, int]], None] = lambda hosts: None,
) -> Outcome:
    """Serve the planned requests in turn by one pair of engines; what every rank saw.

    ``on_event`` receives each step's tokens, ``on_start`` the domains' host process ids.

    Raises:
        RunFailed, DeadlineExceeded, BadInput: as :func:`sembridge.live.launch.launch`.
    """
    config = read_config(folder)
    check_lanes(config, site.tp)
    cut = site.cut if site.cut is not None else config.num_hidden_layers // 2
    orders = Orders(
        folder=str(folder),
        cut=cut,
        lanes={HEAD: site.tp, TAIL: site.tp},
        requests=tuple(p.request for p in planned),
    )
    return launch(
        sides(site, site.tp),
        "sembridge.live.serve:serve",
        msgspec.to_builtins(orders),
        deadline_s=site.deadline_s,
        op_deadline_s=site.op_deadline_s,
        link=site.link,
        on_event=on_event,
        on_start=on_start,
    )


def judge(
    planned: Sequence[Planned], outcome: Outcome, references: Mapping[str, Generated]
) -> list[Served]:
    """Hold each request's consumers against the unsplit model, and its bytes against the plans."""
    ranks = {name: msgspec.convert(result, list[Seen]) for name, result in outcome.results.items()}
    return [
        _judge(p, {name: seen[i] for name, seen in ranks.items()}, references[p.ask.id])
        for i, p in enumerate(planned)
    ]


def _judge(planned: Planned, seen: Mapping[str, Seen], reference: Generated) -> Served:
    heads = [s for name, s in sorted(seen.items()) if name.startswith(f"{HEAD}/")]
    tails = {int(n.split("/")[1]): s for n, s in seen.items() if n.startswith(f"{TAIL}/")}
    steps = len(heads[0].tokens)
    whole = "value" in observed(planned.surface)
    matched, worst = 0, 0.0
    for t in range(steps):
        tokens = [row[t] for row in reference.tokens]
        every = torch.log_softmax(reference.logits[t], dim=-1)
        wanted = [float(every[r, token]) for r, token in enumerate(tokens)]
        issued = {s.digests[t] for s in tails.values()}
        for lane in heads:
            error = max((abs(a - b) for a, b in zip(lane.logprobs[t], wanted, strict=False)),
                        default=0.0)  # fmt: skip
            worst = max(worst, error)
            exact = lane.digests[t] in issued if whole else not lane.digests[t]
            matched += lane.tokens[t] == tokens and exact and error <= TOLERANCE
    return Served(
        id=planned.ask.id,
        surface=planned.decision.surface if planned.ask.own else planned.decision.paper_surface,
        tokens=[list(row) for row in zip(*heads[0].tokens, strict=True)],
        logprobs=[list(row) for row in zip(*heads[0].logprobs, strict=True)],
        steps=steps,
        epoch=max(s.epoch for s in seen.values()),
        sent={e: sum((s.sent[e] for s in seen.values()), start=NOTHING) for e in EDGES},
        wire=planned.wire(steps),
        senders=tuple(sorted(i for i, s in tails.items() if s.sent["result"].frames)),
        matched=matched,
        consumers=steps * len(heads),
        largest_logprob_error=worst,
    )


# surface switching ------------------------------------------------------------------------------

CLASSES: dict[str, tuple[dict[str, Any], int, int, bool]] = {
    "logprobs": ({"temperature": 0, "logprobs": 0}, 2, 8, False),
    "token_only": ({"temperature": 0}, 4, 4, False),
    "owner_scoped": ({"temperature": 0}, 4, 4, True),
}
"""Each class of the surface-switching run: request body, rows, steps, and whether the decision has
an owner. One row of one step goes before each, so that 17 rows are decided in 9, 5 and 5 steps:
the paper's totals for 17 rows and so many frames; how it batched them it does not say."""

PROMPT = 5


def switching(tp: int, vocabulary: int) -> list[Ask]:
    """The requests of the surface-switching run (§6.3), of random tokens under one seed."""
    generator = torch.Generator().manual_seed(7)
    asks: list[Ask] = []
    for name, (body, rows, steps, owned) in CLASSES.items():
        for part, (r, s) in (("first", (1, 1)), ("batch", (rows, steps))):
            drawn = torch.randint(vocabulary, (r, PROMPT), generator=generator)
            asks.append(
                Ask(
                    id=f"{name}/{part}",
                    body=body,
                    prompts=tuple(tuple(row) for row in drawn.tolist()),
                    steps=s,
                    owner=tp - 1 if owned else None,
                )
            )
    return asks


class Total(Struct, frozen=True, kw_only=True):
    """One class of requests: result traffic, positions decided, consumers, and who sent."""

    result: Framed
    positions: int
    matched: int
    consumers: int
    senders: tuple[int, ...]


def totals(served: Sequence[Served]) -> dict[str, Total]:
    """A surface-switching run by class."""
    classes: dict[str, list[Served]] = {}
    for one in served:
        classes.setdefault(one.id.split("/")[0], []).append(one)
    return {
        name: Total(
            result=sum((s.sent["result"] for s in group), start=NOTHING),
            positions=sum(len(row) for s in group for row in s.tokens),
            matched=sum(s.matched for s in group),
            consumers=sum(s.consumers for s in group),
            senders=tuple(sorted({i for s in group for i in s.senders})),
        )
        for name, group in classes.items()
    }
