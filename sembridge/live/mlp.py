"""The MLP slice (§6.4, table 3): exact shards cross, partials are completed behind the boundary.

Gate and up projections are column-parallel at the producers; each lane's activation shard crosses
to its mapped consumer, whose row-parallel down projection leaves a partial; a native all-reduce
completes it. Everything is bfloat16 but the reference.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.live.backends import torch
from sembridge.live.local import LocalWorld
from sembridge.lowering import lower_valid
from sembridge.models import Deployment, ModelFacts, mlp_edges
from sembridge.obligations import resolve_valid
from sembridge.wire import Framed, framed

Tensor = Any
Exchange = Callable[[Sequence[Tensor]], list[Tensor]]
"""One tensor of each lane in, one of each lane out."""

HIDDEN, INTERMEDIATE = 5120, 17408
"""Qwen3-14B's, in its config's ``hidden_size`` and ``intermediate_size``."""
TOKENS = (1, 8, 64)
LANES = 2
SEED = 20260911
NAMES = {part: f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down")}


class Weights(Struct, frozen=True, kw_only=True):
    """bfloat16 weights: ``gate`` and ``up`` [intermediate, hidden], ``down`` the transpose's.

    ``origin`` says where they come from, and goes into every result.
    """

    gate: Tensor
    up: Tensor
    down: Tensor
    origin: str


class Row(Struct, frozen=True, kw_only=True):
    """One row of table 3, errors in percent against the FP32 down projection.

    ``bitwise``: every received shard is the sender's. ``distinct``: the lanes' activations and
    partials differ before completion. ``equal``: the lanes' outputs are one after it.
    """

    tokens: int
    bitwise: bool
    distinct: bool
    equal: bool
    relative_l2_percent: float
    max_error_over_peak_percent: float

    @property
    def holds(self) -> bool:
        """Whether shards were delivered exactly and partials completed."""
        return self.bitwise and self.distinct and self.equal


def random_weights(
    hidden: int = HIDDEN, intermediate: int = INTERMEDIATE, *, seed: int = SEED
) -> Weights:
    """Seeded normal weights, scaled so that each projection keeps its input's variance."""
    generator = torch().Generator().manual_seed(seed)

    def drawn(rows: int, columns: int) -> Tensor:
        whole = torch().empty(rows, columns).normal_(generator=generator)
        return (whole / columns**0.5).to(torch().bfloat16)

    return Weights(
        gate=drawn(intermediate, hidden),
        up=drawn(intermediate, hidden),
        down=drawn(hidden, intermediate),
        origin=f"seeded random weights (normal, seed {seed})",
    )


def read_weights(
    path: Path, hidden: int = HIDDEN, intermediate: int = INTERMEDIATE, *, layer: int = 0
) -> Weights:
    """The three tensors of one layer's MLP from a safetensors file; nothing else is read.

    Raises:
        BadInput: no such file or tensor, or another shape or dtype than bfloat16 of the model's.
    """
    try:
        safe_open: Any = importlib.import_module("safetensors").safe_open
    except ImportError as error:
        raise BadInput(f"reading weights needs the extra: sembridge[live] ({error})") from error
    shapes = {
        "gate": [intermediate, hidden],
        "up": [intermediate, hidden],
        "down": [hidden, intermediate],
    }
    found: dict[str, Tensor] = {}
    try:
        with safe_open(str(path), framework="pt") as file:
            names = set(file.keys())
            for part, shape in shapes.items():
                name = NAMES[part].replace("layers.0", f"layers.{layer}")
                if name not in names:
                    raise BadInput("no such tensor", path=name, file=str(path))
                there = file.get_slice(name)
                if there.get_shape() != shape or there.get_dtype() != "BF16":
                    raise BadInput(
                        f"{there.get_dtype()} {there.get_shape()}, not BF16 {shape}",
                        path=name,
                        file=str(path),
                    )
                found[part] = file.get_tensor(name)
    except BadInput:
        raise
    except Exception as error:  # the reader's own errors share no base
        raise BadInput(f"not a safetensors file: {error}", file=str(path)) from error
    return Weights(**found, origin=f"layer {layer} of {path.name}")


def inputs(tokens: int, hidden: int = HIDDEN, *, seed: int = SEED) -> Tensor:
    """Seeded normal inputs [tokens, hidden], as they come out of a norm."""
    generator = torch().Generator().manual_seed(seed + tokens)
    return torch().empty(tokens, hidden).normal_(generator=generator).to(torch().bfloat16)


def lane_of(weight: Tensor, lane: int, lanes: int, dim: int) -> Tensor:
    """A lane's rows (``dim`` 0, column-parallel) or columns (1, row-parallel) of a weight.

    Raises:
        BadInput: they do not divide among the lanes.
    """
    if weight.shape[dim] % lanes:
        raise BadInput(f"{weight.shape[dim]} columns do not divide among {lanes} lanes")
    return weight.chunk(lanes, dim=dim)[lane]


def activation(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """A producer lane's activation shard [tokens, its columns]: silu(x gateᵀ) · (x upᵀ)."""
    return torch().nn.functional.silu(x @ gate.T) * (x @ up.T)


def partial(shard: Tensor, down: Tensor) -> Tensor:
    """A consumer lane's addend [tokens, hidden] of the down projection."""
    return shard @ down.T


def run_row(
    weights: Weights, tokens: int, *, deliver: Exchange, complete: Exchange, lanes: int = LANES
) -> Row:
    """One row of table 3: ``deliver`` takes shards across, ``complete`` sums partials natively."""
    x = inputs(tokens, weights.gate.shape[1])
    shards = [
        activation(x, *(lane_of(w, i, lanes, 0) for w in (weights.gate, weights.up)))
        for i in range(lanes)
    ]
    received = deliver(shards)
    partials = [partial(s, lane_of(weights.down, i, lanes, 1)) for i, s in enumerate(received)]
    before = [p.clone() for p in partials]
    outputs = complete(partials)
    whole = torch().cat([s.float() for s in shards], dim=1) @ weights.down.float().T
    error = outputs[0].float() - whole
    return Row(
        tokens=tokens,
        bitwise=all(map(same_bits, received, shards)),
        distinct=all(
            not same_bits(a, b)
            for values in (shards, before)
            for i, a in enumerate(values)
            for b in values[:i]
        ),
        equal=all(same_bits(output, outputs[0]) for output in outputs),
        relative_l2_percent=100 * float(error.norm() / whole.norm()),
        max_error_over_peak_percent=100 * float(error.abs().max() / whole.abs().max()),
    )


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same, bit for bit."""
    int16 = torch().int16
    return a.shape == b.shape and bool(
        torch().equal(a.contiguous().view(int16), b.contiguous().view(int16))
    )


class Boundary:
    """The two edges of one row between two domains of ``backend``, planned from their contracts.

    Ranks are threads of this process with real sockets and native collectives between them.
    ``wire`` is what the plans say crosses, ``sent`` what did.
    """

    def __init__(
        self,
        tokens: int,
        hidden: int = HIDDEN,
        intermediate: int = INTERMEDIATE,
        *,
        lanes: int = LANES,
        backend: str = "gloo",
    ) -> None:
        facts = ModelFacts(
            name="mlp",
            hidden=hidden,
            layers=1,
            heads=lanes,
            kv_heads=lanes,
            vocab=1,
            valid_vocab=1,
            dtype="bfloat16",
            intermediate=intermediate,
            tied=None,
        )
        edges = mlp_edges(facts, Deployment(tp=lanes, rows=tokens))
        self.plans = {
            name: lower_valid(resolve_valid(e.contract()))[0] for name, e in edges.items()
        }
        self.obligations = {name: resolve_valid(e.contract()) for name, e in edges.items()}
        self.lanes = range(lanes)
        self._worlds = {
            name: LocalWorld(ob.domain_of, backend_name=backend, deadline_s=60)
            for name, ob in self.obligations.items()
        }

    @property
    def wire(self) -> dict[str, Framed]:
        """Frames and bytes of each edge's plan."""
        return {n: framed(self.obligations[n], plan.ops) for n, plan in self.plans.items()}

    @property
    def sent(self) -> dict[str, Framed]:
        """Frames and bytes that left."""
        nothing = Framed(frames=0, payload=0, framed=0)
        return {
            name: sum((t for r in world.ranks.values() for t in r.sent.values()), start=nothing)
            for name, world in self._worlds.items()
        }

    def deliver(self, shards: Sequence[Tensor]) -> list[Tensor]:
        """Each shard to its mapped consumer."""
        return self._run("mlp.activation", shards, "c")

    def complete(self, partials: Sequence[Tensor]) -> list[Tensor]:
        """The partials' sum at each lane that had one; it goes on to the other domain too."""
        return self._run("mlp.partial", partials, "p")

    def _run(self, edge: str, values: Sequence[Tensor], at: str) -> list[Tensor]:
        world = self._worlds[edge]
        given = {
            f"p{i}": v.contiguous().to(world.ranks[f"p{i}"].device) for i, v in enumerate(values)
        }
        seen = world.run(self.obligations[edge], self.plans[edge], given)
        held = [seen[f"{at}{i}"].value for i in self.lanes]
        return [value.cpu() for value in held if value is not None]

    def close(self) -> None:
        """End the ranks."""
        for world in self._worlds.values():
            world.close()


def table3(
    weights: Weights, tokens: Sequence[int] = TOKENS, *, lanes: int = LANES, backend: str = "gloo"
) -> list[tuple[Row, dict[str, Framed], dict[str, Framed]]]:
    """Every row over a boundary of its own: the row, the plans' traffic, and the real one."""
    intermediate, hidden = weights.gate.shape
    found: list[tuple[Row, dict[str, Framed], dict[str, Framed]]] = []
    for count in tokens:
        boundary = Boundary(count, hidden, intermediate, lanes=lanes, backend=backend)
        try:
            row = run_row(
                weights, count, deliver=boundary.deliver, complete=boundary.complete, lanes=lanes
            )
            found.append((row, boundary.wire, boundary.sent))
        finally:
            boundary.close()
    return found
