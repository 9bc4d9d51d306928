"""Operators one by one, in numbers: what is derived of an operand placed in every way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sembridge.layout import Partial, Placement, Replicate, Shard
from tests.graphs.programs import MAX, REPLICATE, SUM

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `torch` has it")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from sembridge.graphs.derive import interpret  # noqa: E402
from sembridge.graphs.lattice import Element  # noqa: E402
from sembridge.graphs.torch_graphs import program_of  # noqa: E402

RANKS, SHAPE = 2, (4, 2, 6)
WEIGHT = torch.arange(36, dtype=torch.float64).reshape(6, 6) / 7 - 2
PICK = torch.tensor([1, 0])
PLACED: tuple[Placement, ...] = (REPLICATE, SUM, MAX, *(Shard(dim=d) for d in range(3)))

UNARY: dict[str, Callable[[Any], Any]] = {
    "permute": lambda x: x.permute(1, 2, 0),
    "transpose": lambda x: x.transpose(0, -1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "unsqueeze-last": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1, -1),
    "select": lambda x: x.select(1, 0),
    "slice": lambda x: x[:, :, 1:3],
    "split": lambda x: x.split(2, 2)[0],
    "chunk": lambda x: x.chunk(2, 2)[0],
    "unbind": lambda x: x.unbind(2)[1],
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "stack": lambda x: torch.stack([x, x], 1),
    "flatten": lambda x: x.flatten(1),
    "flatten-front": lambda x: x.flatten(0, 1),
    "split-axis": lambda x: x.unflatten(0, (-1, 2)),
    "neg": lambda x: -x,
    "scale": lambda x: x * 3,
    "divide": lambda x: x / 4,
    "shift": lambda x: x + 1,
    "exp": torch.exp,
    "sum": lambda x: x.sum(1),
    "sum-all": lambda x: x.sum(),
    "mean": lambda x: x.mean(2, keepdim=True),
    "amax": lambda x: x.amax((0, 2)),
    "amin": lambda x: x.amin(2),
    "prod": lambda x: x.prod(0),
    "max": lambda x: x.max(2).values,
    "argmax": lambda x: x.argmax(1),
    "softmax": lambda x: torch.softmax(x, 1),
    "cumsum": lambda x: x.cumsum(2),
    "topk": lambda x: x.topk(1, 1).values,
    "layer-norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[2:]),
    "matmul": lambda x: x @ torch.ones(x.shape[-1], 3, dtype=x.dtype),
    "self-product": lambda x: x * x,
    "gram": lambda x: x @ x.transpose(1, 2),
    "einsum": lambda x: torch.einsum("abc,adc->bd", x, x),
    "maximum": lambda x: torch.maximum(x, x * 1),
    "where": lambda x: torch.where(torch.ones(1, dtype=torch.bool), x, x * 2),
    "masked-fill": lambda x: x.masked_fill(torch.ones(1, dtype=torch.bool), 0),
    "triu": lambda x: x.triu(),
    "index-select": lambda x: x.index_select(1, torch.zeros(2, dtype=torch.int64)),
    "zeros-like": lambda x: torch.zeros_like(x) + x,
    "cast": lambda x: x.to(torch.float32),
}

KNOWN = {
    "permute": 6,
    "transpose": 6,
    "unsqueeze": 6,
    "squeeze": 6,
    "expand": 6,
    "select": 5,
    "slice": 5,
    "cat": 4,
    "stack": 6,
    "flatten": 4,
    "flatten-front": 5,
    "sum": 5,
    "amax": 5,
    "softmax": 3,
    "scale": 5,
    "shift": 4,
    "self-product": 4,
}
"""Of how many of the six placements something has to be known after the operator."""


def blocks(x: Any, placement: Placement) -> list[Any]:
    """What each rank holds of ``x``."""
    match placement:
        case Shard(dim=dim):
            return list(x.chunk(RANKS, dim))
        case Partial(op="sum"):
            return [x * 3, x * -2]
        case Partial():
            mask = torch.arange(x.numel()).reshape(x.shape) % 2 == 0
            return [torch.where(mask, x, x - 5), torch.where(mask, x - 7, x)]
        case Replicate():
            return [x] * RANKS


def joined(values: list[Any], placement: Placement) -> Any:
    stacked = torch.stack(values) if not isinstance(placement, Shard) else None
    match placement:
        case Shard(dim=dim):
            return torch.cat(values, dim)
        case Partial(op="sum"):
            return stacked.sum(0)
        case Partial(op="product"):
            return stacked.prod(0)
        case Partial(op="maximum"):
            return stacked.amax(0)
        case Partial():
            return stacked.amin(0)
        case Replicate():
            assert torch.equal(values[0], values[1])
            return values[0]


@pytest.mark.parametrize("name", UNARY)
def test_what_is_derived_holds(name: str) -> None:
    operator, known = UNARY[name], 0
    torch.manual_seed(5)
    x = torch.randn(SHAPE, dtype=torch.float64)
    for placement in PLACED:
        held = blocks(x, placement)
        program = program_of(make_fx(operator, tracing_mode="fake")(held[0]))
        source = next(n.name for n in program.nodes if n.op == "placeholder")
        # Constants that the operator itself makes are literals of every rank's program.
        inputs = {
            n.name: Element(group="tp", placement=REPLICATE, by=n.name)
            for n in program.nodes
            if n.is_input
        }
        inputs[source] = Element(group="tp", placement=placement, by=source)
        output = program.nodes[-1].args["outputs"][0].name
        found = interpret(program, inputs, "tp", {"tp"}, RANKS).at(output).placement
        if found is None:
            continue
        known += 1
        values = [operator(block) for block in held]
        assert torch.allclose(joined(values, found), operator(x), atol=1e-6), (placement, found)
    assert known >= KNOWN.get(name, 1)
