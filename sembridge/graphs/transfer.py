"""Transfer rules: what an operator makes of its operands' placements, one entry per family.

A rule is a pure function from a :class:`Call` to the placement of the result, None where
nothing can be said, or a tuple of these for an operator with several results. An operator
without an entry gives unknown; so does one whose rule does not know the operands' combination.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, cast

from msgspec import Struct

from sembridge.graphs.lattice import REPLICATE, SUM
from sembridge.graphs.program import Node, Program, Ref, Size, Varying
from sembridge.layout import DTYPES, Operator, Partial, Placement, Replicate, Shard


class Operand(NamedTuple):
    """Placement (None is unknown) and local shape of one argument; a literal is a replica."""

    placement: Placement | None
    shape: tuple[Size, ...]


class Call(Struct, frozen=True, kw_only=True):
    """One node as its rule sees it, with the operands' placements resolved."""

    node: Node
    program: Program
    placed: Callable[[Ref], Placement | None]
    group: Collection[str]
    """The names that the program gives the group whose ranks are interpreted."""
    ranks: int

    @property
    def shape(self) -> tuple[Size, ...]:
        """Local shape of the result; () where it is no single tensor."""
        return self.node.type.shape if self.node.type else ()

    @property
    def dtype(self) -> str:
        """Dtype of the result."""
        return self.node.type.dtype if self.node.type else ""

    def arg(self, name: str, default: Any = None) -> Any:
        """An argument by its name in the operator's signature."""
        return self.node.args.get(name, default)

    def operand(self, *names: str) -> Operand:
        """The first argument present of ``names``, as an operand."""
        return self.as_operand(next((a for n in names if (a := self.arg(n)) is not None), None))

    def as_operand(self, argument: Any) -> Operand:
        """Any argument, as an operand."""
        if not isinstance(argument, Ref):
            return Operand(REPLICATE, ())
        node = self.program.by_name.get(argument.name)
        return Operand(self.placed(argument), node.type.shape if node and node.type else ())

    @property
    def operands(self) -> list[Operand]:
        """Every reference among the arguments, lists included, as operands in order."""
        found: list[Operand] = []
        for argument in self.node.args.values():
            items = cast("list[Any]", argument) if isinstance(argument, list) else [argument]
            found += [self.as_operand(item) for item in items if isinstance(item, Ref)]
        return found

    @property
    def ours(self) -> bool:
        """Whether a collective runs over the group that is interpreted."""
        return self.arg("group_name") in self.group


Result = Placement | None | tuple[Placement | None, ...]
Rule = Callable[[Call], Result]


class Entry(Struct, frozen=True, kw_only=True):
    """A registered rule; ``aliases`` where the result may share its operands' memory."""

    rule: Rule
    aliases: bool = False
    collective: bool = False


RULES: dict[str, Entry] = {}
"""Operator to rule. To teach the interpretation an operator, add it to a family, or a family."""


def transfer(
    *operators: str, aliases: bool = False, collective: bool = False
) -> Callable[[Rule], Rule]:
    """Register a rule for a family of operators: names between spaces, ``aten``'s by default."""

    def register(rule: Rule) -> Rule:
        entry = Entry(rule=rule, aliases=aliases, collective=collective)
        for operator in " ".join(operators).split():
            RULES[operator if "." in operator else f"aten.{operator}"] = entry
        return rule

    return register


def _all_replicas(operands: Sequence[Operand]) -> bool:
    return all(isinstance(o.placement, Replicate) for o in operands)


# Collectives: what each guarantees of its result, whatever the ranks put in.

REDUCTIONS: dict[str, Operator] = {
    "sum": "sum",
    "product": "product",
    "max": "maximum",
    "min": "minimum",
}
"""Reduction names of functional collectives, and the kit's."""


@transfer(
    "_c10d_functional.all_reduce",
    "_c10d_functional.all_gather_into_tensor",
    "_c10d_functional.broadcast",
    collective=True,
)
def everyone_gets_one_value(call: Call) -> Result:
    """All members end with the same tensor: its definition, for any operand, unknown included."""
    return REPLICATE if call.ours else None


@transfer("_c10d_functional.reduce_scatter_tensor", collective=True)
def everyone_gets_a_block(call: Call) -> Result:
    """Blocks of one reduced tensor along axis 0, or along the axis that was moved there before."""
    if not call.ours:
        return None
    axis = _moved_to_front(call)
    return Shard(dim=0 if axis is None else axis)


def _moved_to_front(call: Call) -> int | None:
    """Axis d where the operand is ``cat(chunk(x, ranks, d))``: scattering it scatters x along d."""
    by_name = call.program.by_name
    joined = by_name.get(_name(call.arg("input")))
    if joined is None or joined.packet != "aten.cat" or joined.args.get("dim", 0) != 0:
        return None
    pieces = [by_name.get(_name(piece)) for piece in joined.args.get("tensors", [])]
    items = [p.args for p in pieces if p is not None and p.op == "getitem"]
    if [item["index"] for item in items] != list(range(call.ranks)) or len(pieces) != call.ranks:
        return None
    sources = {_name(item["self"]) for item in items}
    cut = by_name.get(sources.pop()) if len(sources) == 1 else None
    return None if cut is None else _blocks_axis(call, cut)


def _blocks_axis(call: Call, cut: Node) -> int | None:
    """The axis along which a node cuts its operand into one equal block for each rank."""
    whole = call.program.by_name.get(_name(cut.args.get("self")))
    if whole is None or whole.type is None or cut.packet not in ("aten.chunk", "aten.split"):
        return None
    shape = whole.type.shape
    axis: Any = cut.args.get("dim", 0)
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return None
    length = shape[axis]
    if not isinstance(length, int) or length % call.ranks:
        return None
    if cut.packet == "aten.chunk":
        equal = cut.args.get("chunks") == call.ranks
    else:
        sizes: Any = cut.args.get("split_size", cut.args.get("split_sizes"))
        block = length // call.ranks
        equal = sizes in (block, [block] * call.ranks)
    return axis % len(shape) if equal else None


def _name(argument: Any) -> str:
    return argument.name if isinstance(argument, Ref) else ""


def doubt(call: Call) -> str | None:
    """What a collective contradicts: an operand that it cannot be meant for.

    Its result is the same on every rank all the same, but either the program or what the
    caller says of its inputs is wrong, so no fact is derived from it.
    """
    if not call.ours:
        return None
    placement = call.operand("input").placement
    reduction = call.arg("reduce_op")
    if reduction is None:
        if isinstance(placement, Partial):
            return f"gathers addends: its operand is partial({placement.op})"
    elif isinstance(placement, Shard):
        return f"combines by {reduction} what is sharded along axis {placement.dim}"
    elif isinstance(placement, Partial) and placement.op != REDUCTIONS.get(reduction):
        return f"combines by {reduction} what is partial({placement.op})"
    elif isinstance(placement, Replicate) and reduction in ("sum", "product"):
        return f"combines by {reduction} what every rank holds already: counted {call.ranks} times"
    return None


# Elementwise operators.


def along_shards(operands: Sequence[Operand], shape: tuple[Size, ...]) -> Placement | None:
    """Broadcasting without partials: one common sharded axis, along which nothing else extends.

    A replica as long as the *local* block of a sharded axis is no operand of one logical
    tensor, so it gives unknown.
    """
    if any(o.placement is None or isinstance(o.placement, Partial) for o in operands):
        return None
    axes = {o.placement.dim - len(o.shape) for o in operands if isinstance(o.placement, Shard)}
    if not axes:
        return REPLICATE
    axis = axes.pop()
    if axes or -axis > len(shape):
        return None
    for o in operands:
        length = o.shape[axis] if -axis <= len(o.shape) else 1
        if length != (shape[axis] if isinstance(o.placement, Shard) else 1):
            return None
    return Shard(dim=len(shape) + axis)


def added(operands: Sequence[Operand], shape: tuple[Size, ...]) -> Placement | None:
    """A sum of terms: addends add up to addends; a replica among them would count once a rank."""
    if all(o.placement == SUM for o in operands):
        return SUM
    return along_shards(operands, shape)


def scaled(linear: Operand, factors: Sequence[Operand], shape: tuple[Size, ...]) -> Result:
    """An operator linear in one operand while the others are the same on every rank."""
    if linear.placement == SUM and _all_replicas(factors):
        return SUM
    return along_shards([linear, *factors], shape)


NONLINEAR = """
abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil
clamp clamp_max clamp_min cos cosh elu eq erf erfc exp exp2 expm1 floor floor_divide fmod ge gelu
gt hardsigmoid hardswish hardtanh isinf isnan isfinite le leaky_relu log log10 log1p log2
log_sigmoid logical_and logical_not logical_or logical_xor lt mish ne pow reciprocal relu relu6
remainder round rsqrt selu sgn sigmoid sign silu sin sinh softplus sqrt square tan tanh threshold
trunc addcmul addcdiv lerp
"""


@transfer(NONLINEAR)
def nonlinear(call: Call) -> Result:
    """f(x, ...) elementwise: replicas and shards stay what they are, a partial is lost."""
    return along_shards(call.operands, call.shape)


@transfer("add", "sub", "rsub")
def add(call: Call) -> Result:
    """``self + alpha * other``."""
    if any(o.placement == SUM for o in call.operands) and not isinstance(
        call.arg("alpha", 1), int | float
    ):
        return None
    terms = [call.as_operand(call.arg(name)) for name in ("self", "other")]
    return added(terms, call.shape)


@transfer("mul")
def multiply(call: Call) -> Result:
    """A product is linear in each factor."""
    a, b = call.operand("self"), call.operand("other")
    return scaled(a, [b], call.shape) if a.placement == SUM else scaled(b, [a], call.shape)


@transfer("div")
def divide(call: Call) -> Result:
    """A quotient is linear in the dividend, unless it is rounded."""
    operands = [call.operand("self"), call.operand("other")]
    if call.arg("rounding_mode") is not None:
        return along_shards(operands, call.shape)
    return scaled(operands[0], operands[1:], call.shape)


@transfer("neg")
def negate(call: Call) -> Result:
    """Linear; of a maximum it would make a minimum, which is left unknown."""
    return scaled(call.operand("self"), [], call.shape)


@transfer("maximum", "minimum")
def extreme(call: Call) -> Result:
    """The maximum of partial maxima is one; likewise the minimum."""
    operator = Partial(op="maximum" if call.node.packet == "aten.maximum" else "minimum")
    if all(o.placement == operator for o in call.operands):
        return operator
    return along_shards(call.operands, call.shape)


@transfer("where")
def where(call: Call) -> Result:
    """Choosing between two partials of one operator, by the same condition everywhere."""
    condition = call.operand("condition")
    a, b = (call.as_operand(call.arg(name)) for name in ("self", "other"))
    if isinstance(a.placement, Partial) and a.placement == b.placement:
        return a.placement if isinstance(condition.placement, Replicate) else None
    return along_shards([condition, a, b], call.shape)


@transfer("masked_fill")
def masked_fill(call: Call) -> Result:
    """Zeroing addends by the same mask everywhere leaves addends."""
    x, mask, value = call.operand("self"), call.operand("mask"), call.arg("value")
    if x.placement == SUM and not isinstance(value, Ref) and value == 0:
        return SUM if isinstance(mask.placement, Replicate) else None
    return along_shards([x, mask, call.as_operand(value)], call.shape)


@transfer("_c10d_functional.wait_tensor", "contiguous", "alias", "detach", aliases=True)
@transfer("clone", "lift_fresh_copy", "positive")
def same(call: Call) -> Result:
    """The operand itself."""
    return call.operands[0].placement if call.operands else None


@transfer("_to_copy", "to", "type_as", aliases=True)
def cast_dtype(call: Call) -> Result:
    """A cast rounds; partials survive it into a floating dtype, as DTensor has it too."""
    placement = call.operand("self").placement
    dtype = DTYPES.get(call.dtype)
    if isinstance(placement, Partial) and not (dtype and dtype.floating):
        return None
    return placement


@transfer("dropout", aliases=True)
def dropout(call: Call) -> Result:
    """Nothing outside of training; in training each rank draws its own noise."""
    return call.operand("input").placement if call.arg("train") is False else None


# Contractions.


def contract(
    operands: Sequence[tuple[Sequence[Any], Operand]], output: Sequence[Any]
) -> Placement | None:
    """A product of tensors by labelled axes, summed over the labels that ``output`` lacks.

    Linear in each operand: one partial sum among replicas gives a partial sum. Where every
    operand that has a label is sharded along it, the result is too, or where the label is
    summed over, the blocks' results are addends.
    """
    placements = [o.placement for _, o in operands]
    if _all_replicas([o for _, o in operands]):
        return REPLICATE
    if placements.count(SUM) == 1 and all(p == SUM or isinstance(p, Replicate) for p in placements):
        return SUM
    if any(p is None or isinstance(p, Partial) for p in placements):
        return None
    if any(
        len(set(labels)) != len(labels) or len(labels) != len(o.shape) for labels, o in operands
    ):
        return None
    sharded = {labels[o.placement.dim] for labels, o in operands if isinstance(o.placement, Shard)}
    if len(sharded) != 1:
        return None
    label = sharded.pop()
    lengths: set[Size] = set()
    for labels, o in operands:
        if label not in labels:
            continue
        at = list(labels).index(label)
        lengths.add(o.shape[at])
        if not isinstance(o.placement, Shard):
            return None
    if len(lengths) != 1:
        return None
    return Shard(dim=list(output).index(label)) if label in output else SUM


def _matrix_product(a: Operand, b: Operand) -> Placement | None:
    """numpy.matmul's shapes: batch axes broadcast, a vector is a row on the left."""

    def labels(o: Operand, matrix: str) -> list[Any]:
        batch = len(o.shape) - len(matrix)
        return [*(("batch", batch - i) for i in range(batch)), *matrix]

    left = labels(a, "mk" if len(a.shape) > 1 else "k")
    right = labels(b, "kn" if len(b.shape) > 1 else "k")
    longest = max(left[:-2], right[:-2], key=len)
    output = [*longest, *(["m"] if "m" in left else []), *(["n"] if "n" in right else [])]
    return contract([_squeezed(left, a, b, right), _squeezed(right, b, a, left)], output)


def _squeezed(
    labels: list[Any], o: Operand, other: Operand, others: list[Any]
) -> tuple[list[Any], Operand]:
    """An operand without the batch axes of length 1 that the other operand broadcasts."""
    keep = [
        i
        for i, label in enumerate(labels)
        if not (
            o.shape[i] == 1
            and o.placement != Shard(dim=i)
            and label in others
            and label not in ("m", "k", "n")
            and other.shape[others.index(label)] != 1
        )
    ]
    placement = o.placement
    if isinstance(placement, Shard):
        placement = Shard(dim=keep.index(placement.dim))
    return [labels[i] for i in keep], Operand(placement, tuple(o.shape[i] for i in keep))


@transfer("mm", "bmm", "matmul", "mv", "dot")
def matmul(call: Call) -> Result:
    """Column-parallel gives a shard, row-parallel (the summed axis sharded) a partial sum."""
    a, b = call.operand("self"), call.operand("other", "mat2", "vec", "tensor")
    return _matrix_product(a, b)


@transfer("linear")
def linear(call: Call) -> Result:
    """``x @ weight.T + bias``; a replicated bias on a partial product would count on each rank."""
    x, weight = call.operand("input"), call.operand("weight")
    rows = list(range(len(x.shape) - 1))
    product = contract([([*rows, "k"], x), (["n", "k"], weight)], [*rows, "n"])
    return _with_bias(call, product, call.arg("bias"))


@transfer("addmm", "baddbmm")
def add_product(call: Call) -> Result:
    """``self + a @ b``; scaled by literals."""
    a, b = call.operand("mat1", "batch1"), call.operand("mat2", "batch2")
    return _with_bias(call, _matrix_product(a, b), call.arg("self"))


def _with_bias(call: Call, product: Placement | None, bias: Any) -> Placement | None:
    if bias is None:
        return product
    return added([Operand(product, call.shape), call.as_operand(bias)], call.shape)


@transfer("einsum")
def einsum(call: Call) -> Result:
    """Any labelled contraction without an ellipsis."""
    equation: Any = call.arg("equation", "")
    if not isinstance(equation, str) or "..." in equation or "->" not in equation:
        return None
    inputs, output = equation.replace(" ", "").split("->")
    operands = [call.as_operand(tensor) for tensor in call.arg("tensors", [])]
    labels = inputs.split(",")
    return contract(list(zip(labels, operands, strict=True)), output)


@transfer(
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
def attention(call: Call) -> Result:
    """Independent along batch and heads: sharded there when query, key and value all are.

    The sequence and feature axes mix, so sharding along them is lost. Of several results only
    the first, the attention itself, is placed.
    """
    several = call.node.packet != "aten.scaled_dot_product_attention"
    found = _attention(call)
    return (found, *[None] * 8) if several else found


def _attention(call: Call) -> Placement | None:
    heads = [call.operand(name) for name in ("query", "key", "value")]
    mask = call.arg("attn_mask", call.arg("attn_bias"))
    operands = heads if mask is None else [*heads, call.as_operand(mask)]
    if call.arg("dropout_p", 0.0) != 0.0 or any(o.placement is None for o in operands):
        return None
    if _all_replicas(operands):
        return REPLICATE
    query = heads[0].placement
    rank = len(heads[0].shape)
    if not isinstance(query, Shard) or query.dim >= rank - 2:
        return None
    if any(o.placement != query or len(o.shape) != rank for o in heads):
        return None
    for o in operands[3:]:
        at = query.dim - rank
        length = o.shape[at] if -at <= len(o.shape) else 1
        same_axis = isinstance(o.placement, Shard) and o.placement.dim - len(o.shape) == at
        if not (same_axis or (isinstance(o.placement, Replicate) and length == 1)):
            return None
    return query


# Reductions and what works along an axis.


def _axes(argument: Any, rank: int) -> set[int] | None:
    """Axes as non-negative integers; every axis where none is named, None where unreadable."""
    if argument is None or argument == []:
        return set(range(rank))
    listed = cast("list[Any]", argument) if isinstance(argument, list) else [argument]
    if not all(isinstance(a, int) and -rank <= a < max(rank, 1) for a in listed):
        return None
    return {a % rank for a in listed} if rank else set()


def _reduced(call: Call, completes: Operator | None) -> Placement | None:
    """Reduction over axes; over the sharded one it leaves a partial where ranks can combine."""
    x = call.operand("self", "input")
    if isinstance(x.placement, Replicate) or x.placement is None:
        return x.placement
    if isinstance(x.placement, Partial):
        return x.placement if x.placement.op == completes else None
    axes = _axes(call.arg("dim"), len(x.shape))
    if axes is None:
        return None
    axis = x.placement.dim
    if axis in axes:
        return None if completes is None else Partial(op=completes)
    kept = call.arg("keepdim", False)
    return Shard(dim=axis if kept else axis - sum(a < axis for a in axes))


COMBINED: dict[str, Operator] = {
    "aten.sum": "sum",
    "aten.prod": "product",
    "aten.amax": "maximum",
    "aten.amin": "minimum",
}


@transfer("sum", "prod", "amax", "amin")
def reduce(call: Call) -> Result:
    """Reductions that combine over shards by a collective's operator."""
    return _reduced(call, COMBINED[call.node.packet])


@transfer("mean")
def mean(call: Call) -> Result:
    """Linear on a partial sum; over a sharded axis the combination would be an average."""
    x = call.operand("self")
    return SUM if x.placement == SUM else _reduced(call, None)


@transfer("argmax", "argmin", "any", "all", "var", "std", "logsumexp", "linalg_vector_norm")
def reduce_locally(call: Call) -> Result:
    """Reductions whose results over shards no collective's operator combines."""
    return _reduced(call, None)


@transfer("max", "min")
def extreme_along(call: Call) -> Result:
    """Values and indices along an axis, or the one extreme of all, or of two tensors."""
    name: Operator = "maximum" if call.node.packet == "aten.max" else "minimum"
    if call.arg("other") is not None:
        return extreme(call)
    if call.arg("dim") is None:
        return _reduced(call, name)
    return _reduced(call, name), _reduced(call, None)


def _along(call: Call, operand: str, axes: set[int] | None) -> Placement | None:
    """An operator that mixes along ``axes`` only, and keeps the shape's axes."""
    x = call.operand(operand, "self", "input")
    if isinstance(x.placement, Shard) and axes is not None and x.placement.dim not in axes:
        return x.placement
    return x.placement if isinstance(x.placement, Replicate) else None


@transfer("softmax", "_softmax", "log_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp")
def along_axis(call: Call) -> Result:
    """Normalises or scans along one axis."""
    x = call.operand("self", "input")
    return _along(call, "self", _axes(call.arg("dim", -1), len(x.shape)))


@transfer("topk", "sort", "argsort")
def ordered(call: Call) -> Result:
    """Orders along one axis; values and indices are placed alike."""
    return along_axis(call)


@transfer("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm", "_fused_layer_norm")
def normalise(call: Call) -> Result:
    """Normalises over the last axes, by weights that are the same on every rank."""
    x = call.operand("input")
    weights = [call.as_operand(call.arg(name)) for name in ("weight", "bias")]
    last = len(call.arg("normalized_shape", []))
    axes = set(range(len(x.shape) - last, len(x.shape)))
    return _along(call, "input", axes) if _all_replicas(weights) else None


@transfer("tril", "triu")
def triangle(call: Call) -> Result:
    """Zeroes by position in the last two axes: linear, and independent of the axes before."""
    x = call.operand("self")
    return SUM if x.placement == SUM else _along(call, "self", {len(x.shape) - 1, len(x.shape) - 2})


# Views: axes renamed, split, joined, cut.


def reshaped(
    before: tuple[Size, ...], after: tuple[Size, ...], axis: int, grows: int | None
) -> int | None:
    """Where the blocks along ``axis`` lie after a row-major reshape of the local block.

    Blocks along an axis join along every axis of the result that as many elements come before.
    ``grows`` is the position of -1 in the shape asked for, the axis that is longer on a single
    device. Without it one axis only may come in question, and a block of length 1 may have been
    joined to the axis before it or behind it.
    """
    if before == after:
        return axis
    front = _elements(before[:axis])
    possible = [i for i in range(len(after)) if _elements(after[:i]) == front]
    if grows is not None:
        return grows if grows in possible else None
    if before[axis] == 1:
        return None
    if before[: axis + 1] == after[: axis + 1]:
        return axis
    return possible[0] if len(possible) == 1 else None


def _elements(shape: tuple[Size, ...]) -> tuple[int, list[str]]:
    """Element count as an integer and the symbols that multiply it."""
    lengths = [size for size in shape if isinstance(size, int)]
    return math.prod(lengths), sorted(size for size in shape if isinstance(size, str))


@transfer("view", "reshape", "_unsafe_view", "flatten", "unflatten", aliases=True)
def reshape(call: Call) -> Result:
    """The same elements in row-major order."""
    x = call.operand("self")
    if not isinstance(x.placement, Shard):
        return x.placement
    asked: Any = call.arg("size", call.arg("shape", []))
    grows = asked.index(-1) if isinstance(asked, list) and -1 in asked else None
    axis = reshaped(x.shape, call.shape, x.placement.dim, grows)
    return None if axis is None else Shard(dim=axis)


def _moved(call: Call, order: Callable[[int], list[int]]) -> Placement | None:
    """An operator that permutes axes; ``order`` lists, for a rank, where each one comes from."""
    x = call.operand("self")
    if not isinstance(x.placement, Shard):
        return x.placement
    return Shard(dim=order(len(x.shape)).index(x.placement.dim))


@transfer("permute", "t", "transpose", "swapaxes", "numpy_T", aliases=True)
def permute(call: Call) -> Result:
    """Axes in another order."""

    def order(rank: int) -> list[int]:
        if call.node.packet == "aten.permute":
            return [d % rank for d in call.arg("dims")]
        if call.node.packet in ("aten.t", "aten.numpy_T"):
            return list(range(rank))[::-1]
        a, b = (call.arg(f"dim{i}", call.arg(f"axis{i}")) % rank for i in (0, 1))
        return [b if d == a else a if d == b else d for d in range(rank)]

    return _moved(call, order)


@transfer("unsqueeze", aliases=True)
def unsqueeze(call: Call) -> Result:
    """A new axis of length 1."""
    x = call.operand("self")
    if not isinstance(x.placement, Shard):
        return x.placement
    return Shard(dim=x.placement.dim + (call.arg("dim") % (len(x.shape) + 1) <= x.placement.dim))


@transfer("squeeze", aliases=True)
def squeeze(call: Call) -> Result:
    """Axes of length 1 dropped; a sharded one is longer than that as a whole, so it is lost."""
    x = call.operand("self")
    if not isinstance(x.placement, Shard):
        return x.placement
    axes = _axes(call.arg("dim"), len(x.shape))
    dropped = {a for a in axes or () if x.shape[a] == 1}
    if axes is None or x.placement.dim in dropped:
        return None
    return Shard(dim=x.placement.dim - sum(a < x.placement.dim for a in dropped))


@transfer("expand", aliases=True)
def expand(call: Call) -> Result:
    """Axes of length 1 repeated, new ones in front."""
    x = call.operand("self")
    if not isinstance(x.placement, Shard):
        return x.placement
    axis = x.placement.dim + len(call.shape) - len(x.shape)
    return Shard(dim=axis) if call.shape[axis] == x.shape[x.placement.dim] else None


@transfer("slice", "narrow", "split", "chunk", "split_with_sizes", "tensor_split", aliases=True)
def cut(call: Call) -> Result:
    """Cuts along one axis: linear, and nothing is known of a cut along the sharded axis."""
    x = call.operand("self")
    axes = _axes(call.arg("dim", 0), len(x.shape))
    if isinstance(x.placement, Shard):
        return x.placement if axes is not None and x.placement.dim not in axes else None
    return x.placement


@transfer("select", "unbind", aliases=True)
def select(call: Call) -> Result:
    """One index of an axis, or each."""
    x = call.operand("self")
    axes = _axes(call.arg("dim", 0), len(x.shape))
    if not isinstance(x.placement, Shard):
        return x.placement
    if axes is None or x.placement.dim in axes:
        return None
    return Shard(dim=x.placement.dim - (min(axes) < x.placement.dim))


def own_block(call: Call) -> Placement | None:
    """Rank r taking item r of a replica that was cut into equal blocks: a shard."""
    source = call.program.by_name.get(_name(call.arg("self")))
    if call.arg("index") != Varying(tuple(range(call.ranks))) or source is None:
        return None
    axis = _blocks_axis(call, source)
    whole = call.as_operand(source.args.get("self")).placement
    return Shard(dim=axis) if axis is not None and isinstance(whole, Replicate) else None


@transfer("cat", "concat", "stack")
def concatenate(call: Call) -> Result:
    """Joins tensors that are all placed alike; along the sharded axis blocks would interleave."""
    operands = [call.as_operand(tensor) for tensor in call.arg("tensors", [])]
    placements = {o.placement for o in operands}
    placement = placements.pop() if len(placements) == 1 else None
    if not isinstance(placement, Shard):
        return placement
    stacks = call.node.packet == "aten.stack"
    axis = call.arg("dim", 0) % (len(operands[0].shape) + stacks)
    if stacks:
        return Shard(dim=placement.dim + (axis <= placement.dim))
    return None if axis == placement.dim else placement


# Look-ups.


@transfer("embedding")
def embedding(call: Call) -> Result:
    """Rows by index; columns may be sharded, rows not: ids of other blocks need a mask."""
    weight, ids = call.operand("weight"), call.operand("indices")
    if isinstance(ids.placement, Replicate):
        if weight.placement == Shard(dim=1):
            return Shard(dim=len(ids.shape))
        return weight.placement if weight.placement == SUM else along_lookup(weight, ids)
    return along_lookup(weight, ids)


def along_lookup(table: Operand, ids: Operand) -> Placement | None:
    """A look-up in a replicated table is placed as its ids are."""
    if isinstance(table.placement, Replicate) and not isinstance(ids.placement, Partial):
        return ids.placement
    return None


@transfer("index_select")
def index_select(call: Call) -> Result:
    """Rows of one axis by the same indices everywhere."""
    x, index = call.operand("self"), call.operand("index")
    if not isinstance(index.placement, Replicate):
        return None
    if x.placement == SUM:
        return SUM
    return _along(call, "self", _axes(call.arg("dim"), len(x.shape)))


@transfer("gather")
def gather(call: Call) -> Result:
    """Elements along one axis, by indices placed like the tensor."""
    x, index = call.operand("self"), call.operand("index")
    if x.placement == SUM and isinstance(index.placement, Replicate):
        return SUM
    axes = _axes(call.arg("dim"), len(x.shape))
    return _along(call, "self", axes) if x.placement == index.placement else None


# Replicas in, replicas out.


@transfer(
    """
    index one_hot bincount histc nonzero searchsorted bucketize diff roll flip repeat
    repeat_interleave tile constant_pad_nd pad convolution scalar_tensor arange linspace full
    zeros ones eye outer new_zeros new_ones new_full scatter index_fill masked_select
    sym_numel item _local_scalar_dense group_norm native_group_norm
    """,
    aliases=True,
)
def deterministic(call: Call) -> Result:
    """A deterministic function without a better rule: the same operands give the same result.

    Accumulating scatters are left out: their order, and so their rounding, may differ.
    """
    return REPLICATE if _all_replicas(call.operands) else None


@transfer("zeros_like", "ones_like", "full_like")
def constant_like(call: Call) -> Result:
    """A constant in the operand's shape, sharded where that is."""
    x, fill = call.operand("self"), call.operand("fill_value")
    if not isinstance(fill.placement, Replicate):
        return None
    return x.placement if isinstance(x.placement, Shard) else REPLICATE


@transfer("sym_size", "sym_stride")
def local_size(call: Call) -> Result:
    """A size that all ranks share, unless it is that of a sharded axis."""
    x = call.operand("self")
    if isinstance(x.placement, Shard):
        axes = _axes(call.arg("dim"), len(x.shape))
        return REPLICATE if axes is not None and x.placement.dim not in axes else None
    return None if x.placement is None else REPLICATE


@transfer(
    """
    python.add python.sub python.mul python.floordiv python.truediv python.mod python.pow python.neg
    python.eq python.ne python.lt python.le python.gt python.ge python.and_ python.or_ python.not_
    python.sym_max python.sym_min python.sym_int python.sym_float python.sym_not python.sym_ite
    aten._assert_scalar aten.sym_constrain_range_for_size aten._assert_tensor_metadata
    """
)
def arithmetic(call: Call) -> Result:
    """Sizes computed from sizes, and what is asserted of them."""
    return REPLICATE if _all_replicas(call.operands) else None
