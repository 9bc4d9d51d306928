"""The live harness and the engine that runs a small-width model between two domains."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from shutil import rmtree
from time import monotonic
from typing import Any

import msgspec
from msgspec.structs import replace

from experiments.pairs import Ask, Engine, Run, Traffic
from sembridge.lowering import POLICIES, lower_valid
from sembridge.models import Deployment, ModelFacts, model_edges
from sembridge.obligations import resolve_valid

LIVE = "the extra `live` is not installed"

WARM_STEPS = 2
"""Steps of a request that goes before the measured one: connections and caches are made in it."""


def live_installed() -> bool:
    """Whether plans can be run between two live domains here."""
    return find_spec("torch") is not None


def engine() -> Engine | None:
    """The engine that runs a model between two domains, or None where its extra is missing."""
    return run if live_installed() and find_spec("transformers") is not None else None


@cache
def saved(model: str) -> Path:
    """A folder with a model's seeded random weights, kept while this process runs."""
    from sembridge.live import parts

    folder = Path(tempfile.mkdtemp(prefix="sembridge-model-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    parts.save(parts.load(model), folder)
    return folder


def programs(facts: ModelFacts, ask: Ask) -> tuple[Any, Any]:
    """The step over the prompts and each further one: contracts, and switches from their plans."""
    from sembridge.live.mapper import map_plans
    from sembridge.live.serve import EDGES, HEAD, TAIL, Crossing, Program

    rows = ask.concurrency
    owner = ask.tp - 1 if ask.arm.owner else None

    def program(positions: int) -> Program:
        sides: dict[str, Any] = {"head": (HEAD, "cpu"), "tail": (TAIL, "cpu")}
        forward = model_edges(facts, Deployment(tp=ask.tp, rows=positions, **sides))
        back = model_edges(facts, Deployment(tp=ask.tp, rows=rows, owner=owner, **sides))
        edges: dict[str, Any] = {}
        for name in EDGES:
            of = back if name == "result" else forward
            policy = ask.arm.result if name == "result" else ask.arm.forward
            ob = resolve_valid(of[name].contract())
            edges[name] = ob, lower_valid(ob, POLICIES[policy])[0]
        switches = map_plans([edges["hidden"], edges["residual"]], [edges["result"]])
        return Program(
            **{
                name: Crossing(
                    contract=ob.contract,
                    switch=switches.result if name == "result" else switches.forward,
                )
                for name, (ob, _) in edges.items()
            }
        )

    return program(rows * ask.prompt_tokens), program(rows)


def prompts(ask: Ask, vocabulary: int) -> tuple[tuple[int, ...], ...]:
    """A prompt for each row, of random tokens under the asked seed."""
    random = Random(ask.seed)
    return tuple(
        tuple(random.randrange(vocabulary) for _ in range(ask.prompt_tokens))
        for _ in range(ask.concurrency)
    )


TASKS = {"timers": "experiments.timers:serve"}
"""What ranks run for a purpose, where it is not the engine itself."""


def run(ask: Ask) -> Run:
    """Serve a warm-up request and a measured one by engines in fresh processes.

    Times are those at which the head's first lane says its tokens.

    Raises:
        LiveError: a rank failed, or was late.
    """
    from sembridge.live.launch import Side, launch
    from sembridge.live.link import LinkSpec
    from sembridge.live.parts import read_config
    from sembridge.live.serve import HEAD, TAIL, Orders, Request
    from sembridge.live.session import facts_of

    folder = saved(ask.model)
    config = read_config(folder)
    first, then = programs(facts_of(folder), ask)
    given = prompts(ask, config.vocab_size)
    requests = tuple(
        Request(id=name, prompts=given, steps=steps, first=first, then=then)
        for name, steps in (("warm", WARM_STEPS), ("measured", ask.output_tokens))
    )
    said: dict[str, list[float]] = {"warm": [], "measured": []}
    orders = Orders(
        folder=str(folder),
        cut=config.num_hidden_layers // 2,
        lanes={HEAD: ask.tp, TAIL: ask.tp},
        requests=requests,
    )
    done = launch(
        [Side(domain=HEAD, lanes=ask.tp), Side(domain=TAIL, lanes=ask.tp)],
        TASKS.get(ask.purpose, "sembridge.live.serve:serve"),
        msgspec.to_builtins(orders),
        link=LinkSpec(rate_bit_s=ask.rate_bit_s, rtt_s=ask.rtt_s),
        deadline_s=600.0,
        op_deadline_s=120.0,
        on_event=lambda rank, event: said[event["request"]].append(monotonic()),
    )
    if ask.purpose != "timers":
        return _measured(ask, done.results, said)
    from experiments.timers import components

    seen = {name: found["seen"] for name, found in done.results.items()}
    timed = {name: found["timers"] for name, found in done.results.items()}
    return replace(_measured(ask, seen, said), timers_ms=components(timed, ask.output_tokens))


def _measured(ask: Ask, results: Mapping[str, Any], said: Mapping[str, list[float]]) -> Run:
    from sembridge.live.serve import EDGES, HEAD, Seen

    seen = {name: msgspec.convert(found, list[Seen])[1] for name, found in results.items()}
    times, before = said["measured"], said["warm"][-1]
    steps, rows = len(times), ask.concurrency
    between = (times[-1] - times[0]) / max(steps - 1, 1)

    def sent(*edges: str) -> Traffic:
        found = [one.sent[edge] for one in seen.values() for edge in edges]
        return Traffic(
            frames=sum(f.frames for f in found),
            framed_bytes=sum(f.framed for f in found),
            payload_bytes=sum(f.payload for f in found),
        )

    tokens = seen[f"{HEAD}/0"].tokens
    return Run(
        tokens=tuple(tuple(row) for row in zip(*tokens, strict=True)),
        steps=steps,
        forward=sent(*EDGES[:2]),
        result=sent(EDGES[2]),
        seconds=times[-1] - before,
        ttft_s=(times[0] - before,) * rows,
        tpot_s=(between,) * rows,
        latency_s=(times[-1] - before,) * rows,
    )
