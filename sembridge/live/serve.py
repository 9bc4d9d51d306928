"""One pair of engines that serves requests: the task of every rank of a live model run.

Ranks get contracts and switches (:mod:`sembridge.live.mapper`), and nothing that names a plan, a
policy or a configuration. Each step crosses three edges: hidden and residual forward, the result
back; the lifecycle agrees on what comes next. Importing this module loads torch and transformers.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from sembridge.contract import Contract
from sembridge.live.control import Control
from sembridge.live.executor import NO_TRAFFIC, Observation, Rank, lanes_of
from sembridge.live.faults import LiveError
from sembridge.live.lifecycle import Action
from sembridge.live.mapper import Path as Switch
from sembridge.live.parts import Activations, Head, Tail, batch, torch
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import Plan, Tag
from sembridge.wire import Framed

HEAD, TAIL = "head", "tail"
EDGES = ("hidden", "residual", "result")
"""The edges of a step; a frame carries the index."""

NATIVE = {"cpu": "gloo", "cuda": "nccl", "cann": "hccl"}
"""PyTorch's name for a stack's communicator."""


class Crossing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One edge of a step: what its contract says, and how its switch is set."""

    contract: Contract
    switch: Switch


class Program(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The edges of one kind of step."""

    hidden: Crossing
    residual: Crossing
    result: Crossing


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch of prompts of one length, and how it is decoded.

    ``steps`` bounds the tokens of each row; it ends before that once every row has produced one
    of ``stop``. ``first`` is the step over the prompts, ``then`` each further one.
    """

    id: str
    prompts: tuple[tuple[int, ...], ...]
    steps: int
    stop: tuple[int, ...] = ()
    first: Program
    then: Program


class Orders(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all ranks run: the saved model and its cut, and requests in turn."""

    folder: str
    cut: int
    lanes: dict[str, int]
    requests: tuple[Request, ...]


class Seen(Struct, frozen=True, kw_only=True):
    """What one rank saw of one request.

    ``tokens`` are [step][row] as the rank has them, ``digests`` of the complete logits it held at
    each step ("" where it held none), ``logprobs`` of the tokens where it held the logits, or the
    token's log-probability of a record; ``sent`` what it sent on each edge.
    """

    request: str
    epoch: int
    tokens: list[list[int]]
    digests: list[str]
    logprobs: list[list[float]]
    sent: dict[str, Framed]


def serve(rank: Rank, arguments: dict[str, Any]) -> Any:
    """Load this rank's part of the model and serve every request; what it saw of each."""
    orders = msgspec.convert(arguments, Orders, strict=False)
    control = Control(rank, orders.lanes)
    try:
        engine = _Engine(rank, orders, control)
        return msgspec.to_builtins([engine.run(request) for request in orders.requests])
    except LiveError as error:
        control.lifecycle.fail(str(error))
        raise
    finally:
        control.close()


class _Step:
    """A program's edges, ready to run."""

    def __init__(self, program: Program) -> None:
        self.edges: dict[str, tuple[Obligations, Plan]] = {}
        for name in EDGES:
            crossing: Crossing = getattr(program, name)
            contract = crossing.contract
            ops = tuple(crossing.switch.ops())
            ran = Plan(contract=contract.name, tag=contract.tag, ops=ops)
            self.edges[name] = (resolve_valid(contract), ran)


class _Engine:
    """A rank's part of the model, and its lane of every edge."""

    def __init__(self, rank: Rank, orders: Orders, control: Control) -> None:
        self.rank, self.life = rank, control.lifecycle
        mesh = _mesh(rank)
        part = Head if rank.domain == HEAD else Tail
        self.part: Any = part(Path(orders.folder), orders.cut, mesh, device=rank.device)

    def run(self, request: Request) -> Seen:
        """Admit a request, decode it step by step, retire it."""
        before = dict(self.rank.sent)
        self._until(Action.ADMIT)
        tokens: list[list[int]] = []
        digests: list[str] = []
        logprobs: list[list[float]] = []
        first, then = _Step(request.first), _Step(request.then)
        ids, ended = batch(request.prompts), np.zeros(len(request.prompts), bool)
        while True:
            tag = Tag(
                request=request.id, token=len(tokens), microbatch=0, epoch=self.life.state.epoch
            )
            step = then if tokens else first
            chosen, digest, shown = self._step(step, tag, ids, len(request.prompts))
            tokens.append(chosen)
            digests.append(digest)
            logprobs.append(shown)
            if self.rank.domain == HEAD and self.rank.lane == 0:
                self.rank.emit({"request": request.id, "tokens": chosen})
            ids = torch.tensor(chosen, dtype=torch.int64)[:, None]
            ended |= np.isin(chosen, request.stop)
            if len(tokens) == request.steps or ended.all():
                break
            self.life.agree(Action.CONTINUE)
        self._until(Action.RETIRE)
        self.part.reset()
        epoch = self.life.retire()
        return Seen(
            request=request.id,
            epoch=epoch,
            tokens=tokens,
            digests=digests,
            logprobs=logprobs,
            sent={
                name: _less(self.rank.sent.get(i, NO_TRAFFIC), before.get(i, NO_TRAFFIC))
                for i, name in enumerate(EDGES)
            },
        )

    def _until(self, action: Action) -> None:
        """Propose until every rank of the host does."""
        while self.life.agree(action) is not action:
            pass

    def _cross(self, step: _Step, edge: str, tag: Tag, value: Any = None) -> Observation | None:
        """Take part in one edge; what this rank's consumer endpoint holds then."""
        ob, ran = step.edges[edge]
        names = lanes_of(ob)
        seen = self.rank.run(ob, ran, names=names, edge=EDGES.index(edge), tag=tag, value=value)
        return next((seen[c] for c in ob.consumers if c in seen), None)

    def _step(
        self, step: _Step, tag: Tag, ids: Any, rows: int
    ) -> tuple[list[int], str, list[float]]:
        """One position of every row: chosen tokens, digest of logits, log-probabilities."""
        if self.rank.domain == HEAD:
            ran = self.part.step(ids.to(self.rank.device))
            self._cross(step, "hidden", tag, ran.hidden)
            self._cross(step, "residual", tag, ran.residual)
            seen = self._cross(step, "result", tag)
            assert seen is not None and seen.result is not None
            return _decided(seen)
        hidden, residual = (self._cross(step, name, tag) for name in ("hidden", "residual"))
        assert hidden is not None and residual is not None
        logits = self.part.step(Activations(hidden=hidden.value, residual=residual.value), rows)
        self._cross(step, "result", tag, logits)
        # What this lane would have sent: it decides when the request ends on this host.
        return logits.argmax(dim=-1).tolist(), digest(logits), []


def _decided(seen: Observation) -> tuple[list[int], str, list[float]]:
    """Tokens as they came; log-probabilities from complete logits, or from records."""
    result: Any = seen.result
    if result.dtype.names:
        return result["token"].tolist(), "", result["token_logprob"].tolist()
    tokens = result.tolist()
    if seen.value is None:
        return tokens, "", []
    every = torch.log_softmax(seen.value, dim=-1)
    picked = every[torch.arange(len(tokens)), torch.tensor(tokens)]
    return tokens, digest(seen.value), picked.tolist()


def digest(logits: Any) -> str:
    """A short name for a tensor's very bits."""
    return hashlib.blake2b(logits.cpu().contiguous().numpy().tobytes(), digest_size=16).hexdigest()


def _mesh(rank: Rank) -> Any:
    """A mesh over this domain's ranks, on the process's default group; None for one lane."""
    if rank.device.type != "cpu":
        getattr(torch, rank.device.type).set_device(rank.device)
    if rank.lanes == 1:
        return None
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist = torch.distributed
    store = dist.PrefixStore("model", rank.store)
    native = NATIVE[rank.backend.stack]
    dist.init_process_group(native, store=store, rank=rank.lane, world_size=rank.lanes)
    return dist.device_mesh.init_device_mesh(rank.device.type, (rank.lanes,))


def _less(after: Framed, before: Framed) -> Framed:
    return Framed(
        frames=after.frames - before.frames,
        payload=after.payload - before.payload,
        framed=after.framed - before.framed,
    )
