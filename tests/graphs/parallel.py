"""The same kinds of modules parallelized by DTensor, and blocks that transformers builds."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from sembridge.graphs.dtensor import Captured, capture, merge_ranks
from sembridge.graphs.torch_graphs import as_rank
from tests.graphs import modules


class Gathered(nn.Module):
    """Runs a module and returns every submodule's output that is a DTensor."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.seen: list[Any] = []
        for m in module.modules():
            m.register_forward_hook(self.keep)

    def keep(self, _module: Any, _args: Any, output: Any) -> None:
        value = output[0] if isinstance(output, tuple) else output
        if isinstance(value, DTensor) and not any(value is other for other in self.seen):
            self.seen.append(value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.clear()
        self.module(*args, **kwargs)
        return tuple(self.seen)


class Case(NamedTuple):
    """A parallelized module and the arguments of one call."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def whole(mesh: Any, *shape: int) -> Any:
    torch.manual_seed(2)
    return DTensor.from_local(
        torch.randn(*shape, dtype=torch.float64), mesh, [Replicate()], run_check=False
    )


def column() -> Any:
    return ColwiseParallel(use_local_output=False)


def row(output: Any = None) -> Any:
    return RowwiseParallel(output_layouts=output or Replicate(), use_local_output=False)


def replicated() -> Any:
    """Weights that every rank has, and nothing redistributed."""
    return SequenceParallel(sequence_dim=1, use_local_output=False)


def distributed(module: nn.Module, mesh: Any) -> nn.Module:
    """Every parameter that is local yet as a replica."""
    from torch.distributed.tensor import distribute_module

    return distribute_module(module, mesh)


def linears(module: nn.Module, mesh: Any, output: Any = None) -> nn.Module:
    """The linear layers by their names: gate, up, q, k, v by columns, down and o by rows."""
    plan = {
        path: row(output) if path.rpartition(".")[2] in ("down", "o") else column()
        for path, m in module.named_modules()
        if isinstance(m, nn.Linear)
    }
    return distributed(parallelize_module(module, mesh, plan), mesh)


class Mlp(nn.Module):
    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        h, n = modules.HIDDEN, modules.INNER
        self.gate, self.up = (nn.Linear(h, n, bias, dtype=torch.float64) for _ in range(2))
        self.down = nn.Linear(n, h, bias, dtype=torch.float64)

    def forward(self, x: Any) -> Any:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        h, d, n, kv = modules.HIDDEN, modules.HEAD, modules.HEADS, modules.KV_HEADS
        self.q = nn.Linear(h, n * d, bias=False, dtype=torch.float64)
        self.k, self.v = (nn.Linear(h, kv * d, bias=False, dtype=torch.float64) for _ in range(2))
        self.o = nn.Linear(n * d, h, bias=False, dtype=torch.float64)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape

        def heads(y: Any) -> Any:
            return y.view(batch, length, -1, modules.HEAD).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        k, v = (y.repeat_interleave(modules.HEADS // modules.KV_HEADS, 1) for y in (k, v))
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.RMSNorm(modules.HIDDEN, dtype=torch.float64)
        self.after = nn.LayerNorm(modules.HIDDEN, dtype=torch.float64)
        self.attention, self.mlp = Attention(), Mlp(bias=True)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


class Head(nn.Module):
    """Vocabulary-parallel embedding and output head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(modules.VOCAB, modules.HIDDEN, dtype=torch.float64)
        self.head = nn.Linear(modules.HIDDEN, modules.VOCAB, bias=False, dtype=torch.float64)

    def forward(self, ids: Any) -> Any:
        return self.head(self.table(ids))


def mlp(mesh: Any) -> Case:
    return Case(linears(Mlp(), mesh), (whole(mesh, 2, 6, modules.HIDDEN),), {})


def mlp_partial(mesh: Any) -> Case:
    """The row-parallel product left unreduced."""
    module = linears(Mlp(), mesh, Partial())
    return Case(module, (whole(mesh, 2, 6, modules.HIDDEN),), {})


def attention(mesh: Any) -> Case:
    return Case(linears(Attention(), mesh), (whole(mesh, 2, 6, modules.HIDDEN),), {})


def block(mesh: Any) -> Case:
    return Case(linears(Block(), mesh), (whole(mesh, 2, 6, modules.HIDDEN),), {})


def sequence_block(mesh: Any) -> Case:
    """Sequence parallelism: norms over blocks of the sequence, gathered and scattered around."""
    gathered = PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=False
    )
    plan: dict[str, Any] = {
        "before": replicated(),
        "after": replicated(),
        "attention": gathered,
        "mlp": gathered,
    }
    module = Block()
    for path, m in module.named_modules():
        if isinstance(m, nn.Linear):
            rows = path.rpartition(".")[2] in ("down", "o")
            plan[path] = row(Shard(1)) if rows else column()
    parallelize_module(module, mesh, plan)
    x = DTensor.from_local(
        torch.randn(2, 4, modules.HIDDEN, dtype=torch.float64), mesh, [Shard(1)], run_check=False
    )
    return Case(module, (x,), {})


def head(mesh: Any) -> Case:
    plan = {
        "table": RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Replicate(), use_local_output=False
        ),
        "head": column(),
    }
    torch.manual_seed(3)
    ids = DTensor.from_local(
        torch.randint(modules.VOCAB, (2, 6)), mesh, [Replicate()], run_check=False
    )
    return Case(parallelize_module(Head(), mesh, plan), (ids,), {})


def head_gathered(mesh: Any) -> Case:
    """Every rank ends with all columns of the logits."""
    case = head(mesh)
    plan = ColwiseParallel(output_layouts=Replicate(), use_local_output=False)
    module = parallelize_module(Head(), mesh, {"table": column(), "head": plan})
    return Case(module, case.args, {})


SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 4,
    "vocab_size": 64,
}


def rotary(mesh: Any) -> tuple[Any, Any]:
    return whole(mesh, 1, 6, 4), whole(mesh, 1, 6, 4)


def qwen3(mesh: Any) -> Case:
    """transformers' Qwen3 decoder layer by its own plan: columns, rows, replicated norms."""
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

    config = Qwen3Config(**SMALL, attn_implementation="eager")
    layer = Qwen3DecoderLayer(config, 0).double().eval()
    plan: dict[str, Any] = {
        path: row() if path.endswith(("o_proj", "down_proj")) else column()
        for path, m in layer.named_modules()
        if isinstance(m, nn.Linear)
    }
    module = distributed(parallelize_module(layer, mesh, plan), mesh)
    return Case(module, (whole(mesh, 2, 6, 32),), {"position_embeddings": rotary(mesh)})


def minimax_m2(mesh: Any) -> Case:
    """transformers' MiniMax-M2 layer by its own plan; each rank has its part of every expert."""
    from transformers import MiniMaxM2Config
    from transformers.models.minimax_m2.modeling_minimax_m2 import MiniMaxM2DecoderLayer

    config = MiniMaxM2Config(
        **SMALL,
        num_local_experts=4,
        num_experts_per_tok=2,
        attn_implementation="eager",
        experts_implementation="batched_mm",
    )
    torch.manual_seed(4)
    layer = MiniMaxM2DecoderLayer(config, 0).double().eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.2)
    plan: dict[str, Any] = {
        f"self_attn.{name}_proj": ColwiseParallel(
            output_layouts=Replicate(), use_local_output=False
        )
        for name in "qkv"
    }
    plan["self_attn.o_proj"] = row()
    moe = layer.mlp
    parallelize_module(layer, mesh, plan)
    distributed(layer.self_attn, mesh)
    distributed(layer.input_layernorm, mesh)
    distributed(layer.post_attention_layernorm, mesh)
    parallelize_module(
        moe,
        mesh,
        PrepareModuleInput(
            input_layouts=(Replicate(),),
            desired_input_layouts=(Replicate(),),
            use_local_output=True,
        ),
    )
    parallelize_module(
        moe,
        mesh,
        PrepareModuleOutput(
            output_layouts=(Partial(),),
            desired_output_layouts=(Replicate(),),
            use_local_output=False,
        ),
    )
    return Case(layer, (whole(mesh, 2, 6, 32),), {"position_embeddings": rotary(mesh)})


CASES: dict[str, Callable[[Any], Case]] = {
    "mlp": mlp,
    "mlp-partial": mlp_partial,
    "attention": attention,
    "block": block,
    "sequence-block": sequence_block,
    "head": head,
    "head-gathered": head_gathered,
    "qwen3": qwen3,
    "minimax-m2": minimax_m2,
}


def captured(name: str, ranks: int) -> Captured:
    """The graph of a case with every submodule's output, merged over the ranks."""
    found: list[Captured] = []
    for rank in range(ranks):
        with as_rank(rank, ranks), contextlib.redirect_stderr(io.StringIO()):
            mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))
            case = CASES[name](mesh)
            found.append(capture(Gathered(case.module), case.args, case.kwargs, group="tp"))
    return merge_ranks(found)
