"""Boundary edges of a real model, from its published config (§6.2's real edges).

What a config does not say is an error that names the key, or an explicit option; nothing is
guessed. The facts are those of tensor-parallel inference: a completed all-reduce makes the
hidden state and the residual one replica class, the row-parallel down projection leaves a
partial, the gathered output head is replicated by layout alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from sembridge.contract import (
    BoundaryEdge,
    Contract,
    Domain,
    GraphFacts,
    Producer,
    Reduction,
    RuntimeFacts,
    Stack,
    Value,
    build_contract,
)
from sembridge.errors import BadInput
from sembridge.layout import DTYPES, Lane, Partial, Placement, Replicate, Shard
from sembridge.plan import Tag
from sembridge.surfaces import Complete, Logprobs, Surface, Tokens

KEYS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "num_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "multi_query_group_num", "num_kv_heads"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "intermediate": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "dtype": ("dtype", "torch_dtype"),
    "tied": ("tie_word_embeddings",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
}
"""Each fact and the keys that published configs give it under, in order of preference."""


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What the edges need of a model; ``intermediate`` and ``tied`` are None where unstated.

    ``vocab`` counts the columns of the output head, ``valid_vocab`` those that are tokens.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    valid_vocab: int
    dtype: str
    intermediate: int | None
    tied: bool | None
    experts: bool = False


def read_model(
    config: Mapping[str, Any],
    *,
    name: str | None = None,
    dtype: str | None = None,
    valid_vocab: int | None = None,
) -> ModelFacts:
    """The facts of a published ``config.json``, nested ``text_config`` or not.

    ``dtype`` and ``valid_vocab`` (tokens of a padded vocabulary) say what the config leaves out.

    Raises:
        BadInput: a fact that is absent, contradictory or of the wrong type; names the key.
    """
    path = "$"
    text: Mapping[str, Any] = config
    nested = config.get("text_config")
    if nested is not None:
        if not isinstance(nested, Mapping):
            raise BadInput("expected an object", path="$.text_config")
        path, text = "$.text_config", cast("Mapping[str, Any]", nested)

    def integer(fact: str, default: int | None = None) -> int:
        key, found = _lookup(text, config, KEYS[fact], path)
        if found is None:
            if default is not None:
                return default
            raise BadInput(f"absent: none of {', '.join(KEYS[fact])}", path=f"{path}.{key}")
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < 2**31:
            raise BadInput(f"expected a positive integer, got {found!r}", path=f"{path}.{key}")
        return found

    heads = integer("heads")
    vocab = integer("vocab")
    if valid_vocab is not None and not 0 < valid_vocab <= vocab:
        raise BadInput(
            f"{valid_vocab} tokens of a vocabulary of {vocab}", path=f"{path}.vocab_size"
        )
    stated = _lookup(text, config, KEYS["intermediate"], path)[1] is not None
    tied_key, tied = _lookup(text, config, KEYS["tied"], path)
    if tied is not None and not isinstance(tied, bool):
        raise BadInput(f"expected a boolean, got {tied!r}", path=f"{path}.{tied_key}")
    model = config.get("model_type", "model")
    if not isinstance(model, str) or not model:
        raise BadInput(f"expected a string, got {model!r}", path="$.model_type")
    return ModelFacts(
        name=name or model,
        hidden=integer("hidden"),
        layers=integer("layers"),
        heads=heads,
        kv_heads=integer("kv_heads", default=heads),
        vocab=vocab,
        valid_vocab=valid_vocab or vocab,
        dtype=_dtype(text, config, path, dtype),
        intermediate=integer("intermediate") if stated else None,
        tied=tied,
        experts=_lookup(text, config, KEYS["experts"], path)[1] is not None,
    )


def _lookup(
    text: Mapping[str, Any], root: Mapping[str, Any], keys: tuple[str, ...], path: str
) -> tuple[str, Any]:
    """The one value given under any of ``keys``, in the text part or at the root."""
    found = [
        (key, part[key])
        for part in ((text,) if text is root else (text, root))
        for key in keys
        if part.get(key) is not None
    ]
    if len({repr(value) for _, value in found}) > 1:
        listed = ", ".join(f"{key} = {value!r}" for key, value in found)
        raise BadInput(f"contradictory: {listed}", path=f"{path}.{found[0][0]}")
    return found[0] if found else (keys[0], None)


def _dtype(text: Mapping[str, Any], root: Mapping[str, Any], path: str, given: str | None) -> str:
    key, found = _lookup(text, root, KEYS["dtype"], path)
    if given is not None:
        found, key = given, "dtype (option)"
    if found is None:
        raise BadInput(
            "absent: none of dtype, torch_dtype; say which with --dtype", path=f"{path}.{key}"
        )
    name = found.removeprefix("torch.") if isinstance(found, str) else found
    if name not in DTYPES:
        raise BadInput(f"no such dtype {found!r}", path=f"{path}.{key}")
    return name


class Deployment(Struct, frozen=True, kw_only=True):
    """How the model is cut: lanes, rows of a step, the owner's rank, and the two stacks.

    ``head`` computes layers up to the cut and consumes results; ``tail`` computes the rest and
    produces them (§5.1).
    """

    tp: int
    rows: int = 1
    owner: int | None = None
    cut: int | None = None
    logits_dtype: str = "float32"
    head: tuple[str, Stack] = ("nvidia", "cuda")
    tail: tuple[str, Stack] = ("ascend", "cann")


class NamedEdge(Struct, frozen=True, kw_only=True):
    """An edge with the facts that make its contract."""

    edge: BoundaryEdge
    graph: GraphFacts
    runtime: RuntimeFacts

    def contract(self) -> Contract:
        """The edge's contract (Algorithm 1, line 1)."""
        return build_contract(self.edge, self.graph, self.runtime)


TAG = Tag(request="edge", token=0, microbatch=0, epoch=0)


def _edge(
    deployment: Deployment,
    name: str,
    value: Value,
    *,
    forward: bool,
    placement: Placement,
    framing_group: str,
) -> BoundaryEdge:
    sides = (deployment.head, deployment.tail)
    (source, _), (target, _) = sides if forward else sides[::-1]
    lanes = range(deployment.tp)
    return BoundaryEdge(
        name=name,
        value=value,
        domains={domain: Domain(stack=stack) for domain, stack in sides},
        producers=tuple([Producer(id=f"p{i}", domain=source) for i in lanes]),
        consumers=tuple([Lane(id=f"c{i}", domain=target, source=f"p{i}") for i in lanes]),
        placement=placement,
        lifetime="token",
        framing_group=framing_group,
    )


def _check_lanes(model: ModelFacts, deployment: Deployment) -> None:
    tp = deployment.tp
    if not 1 <= tp <= 4096:
        raise BadInput(f"{tp} lanes: expected 1 to 4096", path="--tp")
    if model.heads % tp:
        raise BadInput(
            f"{model.heads} attention heads do not divide among {tp} lanes",
            path="num_attention_heads",
        )
    if model.kv_heads % tp and tp % model.kv_heads:
        raise BadInput(
            f"{model.kv_heads} KV heads neither divide among {tp} lanes nor replicate over them",
            path="num_key_value_heads",
        )
    if deployment.owner is not None and not 0 <= deployment.owner < tp:
        raise BadInput(f"rank {deployment.owner} of {tp} lanes", path="--owner")
    if deployment.rows < 0:
        raise BadInput(f"{deployment.rows} rows", path="--rows")
    cut = deployment.cut
    if cut is not None and not 1 <= cut < model.layers:
        raise BadInput(f"cut after layer {cut} of {model.layers}", path="--cut")


def model_edges(model: ModelFacts, deployment: Deployment) -> dict[str, NamedEdge]:
    """Hidden, residual and result edges of a model cut in two by layers.

    Hidden and residual go forward as replicas of the all-reduce before the cut; the result goes
    back, from logits that the layout alone calls replicated, as tokens (issued by ``owner``
    where the runtime names one).

    Raises:
        BadInput: lanes, owner or cut that this model does not admit.
    """
    _check_lanes(model, deployment)
    lanes = tuple(f"p{i}" for i in range(deployment.tp))
    cut = deployment.cut if deployment.cut is not None else model.layers // 2
    lineage = GraphFacts(replica_classes=(lanes,), by=f"all_reduce at layers.{cut - 1}.mlp")
    everyone = tuple(f"c{i}" for i in range(deployment.tp))
    forward = RuntimeFacts(demanded=everyone, tag=TAG)
    edges = {
        kind: NamedEdge(
            edge=_edge(
                deployment,
                f"{model.name}.{kind}",
                Value(kind=kind, shape=(deployment.rows, model.hidden), dtype=model.dtype),
                forward=True,
                placement=Replicate(),
                framing_group="forward",
            ),
            graph=lineage,
            runtime=forward,
        )
        for kind in ("hidden", "residual")
    }
    edges["result"] = result_edge(model, deployment, Tokens())
    return edges


def result_edge(
    model: ModelFacts, deployment: Deployment, surface: Surface, *, name: str = "result"
) -> NamedEdge:
    """The result edge for one consumer surface: complete logits at every producer lane."""
    _check_lanes(model, deployment)
    owner = None if deployment.owner is None else (f"p{deployment.owner}",)
    padded = model.valid_vocab if model.valid_vocab < model.vocab else None
    return NamedEdge(
        edge=_edge(
            deployment,
            f"{model.name}.{name}",
            Value(
                kind="logits",
                shape=(deployment.rows, model.vocab),
                dtype=deployment.logits_dtype,
                valid_last=padded,
            ),
            forward=False,
            placement=Replicate(),
            framing_group="result",
        ),
        graph=GraphFacts(),
        runtime=RuntimeFacts(
            demanded=tuple(f"c{i}" for i in range(deployment.tp)),
            surface=None if isinstance(surface, Complete) else surface,
            owner=owner,
            tag=TAG,
            by="serving API",
        ),
    )


def mlp_edges(model: ModelFacts, deployment: Deployment) -> dict[str, NamedEdge]:
    """The two edges of a tensor-parallel MLP (§6.4): activation shards and row-parallel partials.

    Raises:
        BadInput: a mixture of experts; no intermediate size, or one that does not divide among
            the lanes.
    """
    _check_lanes(model, deployment)
    if model.experts:
        raise BadInput("a mixture of experts has no one MLP to cut", path="$.num_experts")
    if model.intermediate is None:
        raise BadInput("absent: the MLP edges need it", path="intermediate_size")
    if model.intermediate % deployment.tp:
        raise BadInput(
            f"{model.intermediate} columns do not divide among {deployment.tp} lanes",
            path="intermediate_size",
        )
    lanes: Sequence[str] = tuple(f"p{i}" for i in range(deployment.tp))
    runtime = RuntimeFacts(demanded=tuple(f"c{i}" for i in range(deployment.tp)), tag=TAG)
    columns = model.intermediate // deployment.tp
    return {
        "mlp.activation": NamedEdge(
            edge=_edge(
                deployment,
                f"{model.name}.mlp.activation",
                Value(kind="activation", shape=(deployment.rows, columns), dtype=model.dtype),
                forward=True,
                placement=Shard(dim=1),
                framing_group="mlp",
            ),
            graph=GraphFacts(),
            runtime=runtime,
        ),
        "mlp.partial": NamedEdge(
            edge=_edge(
                deployment,
                f"{model.name}.mlp.partial",
                Value(kind="hidden", shape=(deployment.rows, model.hidden), dtype=model.dtype),
                forward=False,
                placement=Partial(op="sum"),
                framing_group="mlp",
            ),
            graph=GraphFacts(
                reduction=Reduction(op="sum", sources=tuple(lanes)), by="row-parallel down_proj"
            ),
            runtime=runtime,
        ),
    }


SURFACES: dict[str, Surface] = {
    "complete": Complete(),
    "tokens": Tokens(),
    "logprobs": Logprobs(),
}
"""Result surfaces by the name a command line calls them."""
