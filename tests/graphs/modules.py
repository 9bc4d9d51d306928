"""Tensor-parallel modules written with functional collectives; ``tp`` 1 is the whole model."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed._functional_collectives as fc
from torch import nn
from torch.nn import functional as F  # noqa: N812

from sembridge.layout import Placement, Replicate, Shard

HIDDEN, INNER, HEADS, KV_HEADS, HEAD, VOCAB = 16, 24, 8, 4, 4, 40
COLUMN, ROW, SAME = Shard(dim=0), Shard(dim=1), Replicate()


class Linear(nn.Module):
    """A weight's local block, without the initialisation of torch's own."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, dtype=torch.float64) / 4)

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.weight)


def all_reduce(x: Any, tp: int) -> Any:
    return fc.all_reduce(x, "sum", "0") if tp > 1 else x.clone()


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(HIDDEN, dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (x * scale)


class Mlp(nn.Module):
    def __init__(self, tp: int) -> None:
        super().__init__()
        self.tp = tp
        self.gate, self.up = Linear(HIDDEN, INNER // tp), Linear(HIDDEN, INNER // tp)
        self.down = Linear(INNER // tp, HIDDEN)

    def forward(self, x: Any) -> Any:
        return all_reduce(self.down(F.silu(self.gate(x)) * self.up(x)), self.tp)


class Attention(nn.Module):
    """Grouped queries with rotated halves."""

    def __init__(self, tp: int) -> None:
        super().__init__()
        self.tp = tp
        self.q = Linear(HIDDEN, HEADS * HEAD // tp)
        self.k, self.v = (Linear(HIDDEN, KV_HEADS * HEAD // tp) for _ in range(2))
        self.o = Linear(HEADS * HEAD // tp, HIDDEN)

    def rotate(self, x: Any) -> Any:
        angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] / (1 + torch.arange(HEAD))
        left, right = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        return x * angles.cos() + torch.cat((-right, left), -1) * angles.sin()

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape

        def heads(y: Any) -> Any:
            return y.view(batch, length, -1, HEAD).transpose(1, 2)

        q, k, v = self.rotate(heads(self.q(x))), self.rotate(heads(self.k(x))), heads(self.v(x))
        k, v = (
            y[:, :, None].expand(-1, -1, HEADS // KV_HEADS, -1, -1).reshape(q.shape) for y in (k, v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous().reshape(batch, length, -1)
        return all_reduce(self.o(mixed), self.tp)


class Block(nn.Module):
    def __init__(self, tp: int) -> None:
        super().__init__()
        self.before, self.attention = Norm(), Attention(tp)
        self.after, self.mlp = Norm(), Mlp(tp)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


class Head(nn.Module):
    """A vocabulary-parallel embedding and output head: each rank has its block of rows."""

    def __init__(self, tp: int, rank: int = 0) -> None:
        super().__init__()
        self.tp, self.first = tp, rank * (VOCAB // tp)
        self.table = nn.Parameter(torch.randn(VOCAB // tp, HIDDEN, dtype=torch.float64))
        self.head = Linear(HIDDEN, VOCAB // tp)

    def forward(self, ids: Any) -> Any:
        local = ids - self.first
        outside = (local < 0) | (local >= VOCAB // self.tp)
        rows = F.embedding(local.masked_fill(outside, 0), self.table)
        hidden = all_reduce(rows.masked_fill(outside[..., None], 0.0), self.tp)
        logits = self.head(hidden)
        if self.tp == 1:
            return logits
        return fc.all_gather_tensor(logits, 2, "0")


def stack(layers: int, tp: int) -> nn.Module:
    """Blocks one after another."""
    return nn.Sequential(*(Block(tp) for _ in range(layers)))


PLACEMENTS: dict[str, Placement] = {
    "*gate.weight": COLUMN,
    "*up.weight": COLUMN,
    "*down.weight": ROW,
    "*q.weight": COLUMN,
    "*k.weight": COLUMN,
    "*v.weight": COLUMN,
    "*o.weight": ROW,
    "*before.weight": SAME,
    "*after.weight": SAME,
    "table": COLUMN,
    "head.weight": COLUMN,
    "x": SAME,
    "ids": SAME,
    "input": SAME,
}


def placements(program: Any) -> dict[str, Placement]:
    """The entries of :data:`PLACEMENTS` that name an input of the program."""
    from fnmatch import fnmatchcase

    names = [n.args["target"] for n in program.nodes if n.op == "placeholder"]
    return {
        key: placement
        for key, placement in PLACEMENTS.items()
        if any(fnmatchcase(name, key) for name in names)
    }


def inputs(kind: str) -> tuple[Any, ...]:
    torch.manual_seed(1)
    if kind == "head":
        return (torch.randint(VOCAB, (2, 6)),)
    return (torch.randn(2, 6, HIDDEN, dtype=torch.float64),)


BUILD: dict[str, Any] = {
    "mlp": lambda tp, rank: Mlp(tp),
    "attention": lambda tp, rank: Attention(tp),
    "block": lambda tp, rank: Block(tp),
    "head": Head,
    "stack": lambda tp, rank: stack(2, tp),
}
"""Each module by name, from the number of ranks and the rank."""
