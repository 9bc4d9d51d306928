"""A decode step's exchange without the model: what crosses, and how long that takes.

The ranks of two domains run the plans of a model's three edges again and again, forward and
back, with values of the real shapes; nothing is computed in between. This measures the link, the
plans' traffic and their time, and calibrates the selector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

import msgspec
import numpy as np

from experiments.pairs import Ask, Run, Traffic
from experiments.real_edges import load_model
from sembridge.contract import Contract
from sembridge.kernels import KERNELS, numpy_dtype
from sembridge.lowering import POLICIES, lower
from sembridge.models import Deployment, ModelFacts, model_edges
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import AllGather, AnyOp, Broadcast, Plan, Project, Send
from sembridge.wire import Framed

HEAD, TAIL = "nvidia", "ascend"
"""The two domains' names in contracts; both run on gloo here."""

WARM = 2
"""Steps before the clock starts: connections, communicators and caches are made in them."""

MODELS = {"qwen3": "qwen3-14b", "qwen3-moe": "qwen3.5-35b-a3b", "minimax-m2": "minimax-m2.7"}

Edge = tuple[Contract, Plan]


def step_edges(ask: Ask, model: ModelFacts | None = None) -> list[Edge]:
    """Hidden, residual and result of one decode step, each with the plan of the asked arm.

    Plans follow from contracts and policies; no name of an arm or a model is looked at.
    """
    facts = model or load_model(MODELS[ask.model])
    owner = ask.tp - 1 if ask.arm.owner else None
    edges = model_edges(facts, Deployment(tp=ask.tp, rows=ask.concurrency, owner=owner))
    found: list[Edge] = []
    for kind, edge in edges.items():
        contract = edge.contract()
        policy = ask.arm.result if kind == "result" else ask.arm.forward
        found.append((contract, lower(contract, POLICIES[policy])))
    return found


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks are told: the edges of each arm, and whose steps to run, block by block."""

    arms: tuple[tuple[Edge, ...], ...]
    blocks: tuple[int, ...] = (0,)
    steps: int
    seed: int = 0
    bursts: tuple[tuple[int, int], ...] = ()
    """Messages to time across the link: bytes of each, and how many before the answer."""


def launch_orders(orders: Orders, ask: Ask) -> dict[str, Any]:
    """Run orders in fresh processes over the asked link; what each rank returned.

    Raises:
        LiveError: a rank failed, or was late.
    """
    from sembridge.live.launch import Side, launch
    from sembridge.live.link import LinkSpec

    return launch(
        (Side(domain=HEAD, lanes=ask.tp), Side(domain=TAIL, lanes=ask.tp)),
        "experiments.exchange:exchange",
        msgspec.to_builtins(orders),
        link=LinkSpec(rate_bit_s=ask.rate_bit_s, rtt_s=ask.rtt_s),
        deadline_s=300.0,
    ).results


def run(ask: Ask) -> Run:
    """Exchange as many steps as tokens are asked for, in fresh processes.

    Raises:
        LiveError: a rank failed, or was late.
    """
    orders = Orders(arms=(tuple(step_edges(ask)),), steps=ask.output_tokens, seed=ask.seed)
    ranks = launch_orders(orders, ask)
    first = ranks[f"{HEAD}/0"]
    seconds: list[float] = first["seconds"][0]
    requests = ask.concurrency
    return Run(
        tokens=tuple(tuple(row) for row in first["tokens"][0]),
        steps=ask.output_tokens,
        forward=traffic(ranks, (0, 1)),
        result=traffic(ranks, (2,)),
        seconds=sum(seconds),
        ttft_s=(seconds[0],) * requests,
        tpot_s=(sum(seconds[1:]) / max(len(seconds) - 1, 1),) * requests,
        latency_s=(sum(seconds),) * requests,
    )


def traffic(ranks: dict[str, Any], edges: Sequence[int]) -> Traffic:
    """What all ranks sent on some edges."""
    sent = [rank["sent"][edge] for rank in ranks.values() for edge in edges]
    frames, framed, payload = (sum(column) for column in zip(*sent, strict=True))
    return Traffic(frames=frames, framed_bytes=framed, payload_bytes=payload)


# at a rank --------------------------------------------------------------------------------------


def exchange(rank: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The task of one rank: calibrate, then run the arms' blocks; times, tokens and traffic."""
    orders = msgspec.convert(arguments, Orders)
    arms = [_Arm(rank, edges, n, orders.seed) for n, edges in enumerate(orders.arms)]
    for arm in arms:
        for _ in range(WARM):
            arm.step()
    rank.sent.clear()
    seconds: list[list[float]] = []
    tokens: list[list[list[int]]] = []
    for block in orders.blocks:
        arm = arms[block]
        times, seen = zip(*(arm.timed() for _ in range(orders.steps)), strict=True)
        seconds.append(list(times))
        tokens.append([list(row) for row in zip(*seen, strict=True)])
    sent = [f for arm in arms for f in arm.sent()]
    return {
        "seconds": seconds,
        "tokens": tokens,
        "sent": [[f.frames, f.framed, f.payload] for f in sent],
        "local": [arm.local() for arm in arms],
        "bursts": [burst(rank, size, count) for size, count in orders.bursts],
    }


class _Arm:
    """One arm at one rank: its edges, the values they carry, and what was seen."""

    def __init__(self, rank: Any, edges: Sequence[Edge], number: int, seed: int) -> None:
        from sembridge.live.executor import lanes_of

        self.rank, self.edges = rank, edges
        self.obs = [resolve_valid(contract) for contract, _ in edges]
        self.names = [lanes_of(ob) for ob in self.obs]
        self.values = [_value(rank, contract, seed + i) for i, (contract, _) in enumerate(edges)]
        self.first = number * len(edges)

    def step(self) -> list[int]:
        """Run every edge's plan once; the tokens that this rank observes, if any."""
        tokens: list[int] = []
        for i, (_, plan) in enumerate(self.edges):
            seen = self.rank.run(
                self.obs[i],
                plan,
                names=self.names[i],
                edge=self.first + i,
                value=self.values[i],
            )
            for held in seen.values():
                if held.result is not None:
                    tokens = [int(t) for t in held.result]
        return tokens

    def timed(self) -> tuple[float, list[int]]:
        """Seconds of a step, and its tokens."""
        start = monotonic_ns()
        tokens = self.step()
        return (monotonic_ns() - start) / 1e9, tokens

    def sent(self) -> list[Framed]:
        """What this rank sent since the clock started, by edge."""
        nothing = Framed(frames=0, payload=0, framed=0)
        return [self.rank.sent.get(self.first + i, nothing) for i in range(len(self.edges))]

    def local(self) -> dict[str, float]:
        """Median seconds of each kind of local work of the plans, done by all its ranks at once."""
        found: dict[str, float] = {}
        for ob, names, (_, plan) in zip(self.obs, self.names, self.edges, strict=True):
            for op in plan.ops:
                kind = type(op).__name__
                if isinstance(op, Send):
                    continue
                work = _work(self.rank, ob, names, op)
                if work is not None:
                    key = f"{kind} {ob.contract.value.kind}"
                    found[key] = max(found.get(key, 0.0), _median(work))
        return found


REPEAT = 9


def _median(work: Callable[[], Any]) -> float:
    times: list[float] = []
    for _ in range(REPEAT):
        start = monotonic_ns()
        work()
        times.append((monotonic_ns() - start) / 1e9)
    return sorted(times)[REPEAT // 2]


def _work(rank: Any, ob: Obligations, names: dict[str, str], op: AnyOp) -> Callable[[], Any] | None:
    """The local part of an op as this rank takes part in it."""
    from sembridge.live.backends import torch

    if isinstance(op, Project):
        if names[op.at] != rank.name or ob.projected is None:
            return None
        value = ob.contract.value
        rows = np.zeros(value.shape, dtype=numpy_dtype(value.dtype))
        projected, kernel = ob.projected, KERNELS[op.projection]
        return lambda: kernel.whole(rows[:, : value.valid_last], projected, ())
    if isinstance(op, Broadcast | AllGather):
        members = op.members if isinstance(op, AllGather) else (op.src, *op.dsts)
        ranks = tuple(dict.fromkeys(names[x] for x in members))
        if rank.name not in ranks or len(ranks) < 2:
            return None
        native, size = rank.native(ranks), ob.sizes[op.surface]
        if isinstance(op, AllGather):
            piece = torch().zeros(-(-size // len(ranks)), dtype=torch().uint8)
            return lambda: native.all_gather(piece)
        whole = torch().zeros(size, dtype=torch().uint8)
        return lambda: native.broadcast(whole, ranks[0])
    return None


ECHOES = 200


def burst(rank: Any, size: int, count: int) -> list[float]:
    """Seconds from the first byte of ``count`` messages to a 4-byte answer, between lanes 0."""
    if rank.lane:
        return []
    peer = f"{TAIL}/0" if rank.domain == HEAD else f"{HEAD}/0"
    times: list[float] = []
    for _ in range(ECHOES if size * count < 2**16 else ECHOES // 10):
        start = monotonic_ns()
        for _ in range(count):
            if rank.domain == HEAD:
                rank.tell(peer, bytes(size))
            else:
                rank.hear(peer, size)
        if rank.domain == HEAD:
            rank.hear(peer, 4)
        else:
            rank.tell(peer, bytes(4))
        times.append((monotonic_ns() - start) / 1e9)
    return times


def _value(rank: Any, contract: Contract, seed: int) -> Any:
    """What this rank's producer holds, equal on every lane; None at a consumer."""
    from sembridge.live.backends import torch, torch_dtype

    if contract.producers[0].domain != rank.domain:
        return None
    made = torch().Generator().manual_seed(seed)
    value = torch().randn(contract.value.shape, generator=made, dtype=torch().float32)
    return value.to(torch_dtype(contract.value.dtype))
