"""Programs read off ``torch.export.save``'s archives, without torch.

An archive may come from a stranger. torch loads one by unpickling tensors and evaluating symbolic
sizes; the graph alone is JSON inside a zip file, and only that is read here, within bounds.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from sembridge.errors import BadInput
from sembridge.graphs.program import Node, Program, Ref, Size, TensorType, higher_order, ordered

MAX_BYTES = 256 * 2**20
"""Bound of the graph's JSON; a 64-layer transformer block graph takes about 10 MB."""

NAMES = ("models/model.json", "serialized_exported_program.json")
"""Ends of the graph's name in archives of torch 2.8 and later, and of earlier ones."""

DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    34: "uint32",
    35: "uint64",
}
"""The archive's dtype numbers."""

Argument = dict[str, Any]
"""A tagged value: one key such as ``as_tensor``, and what it holds."""


class _Input(Struct):
    arg: Argument
    name: str = ""


class _Node(Struct):
    target: str
    inputs: list[_Input]
    outputs: list[Argument]
    metadata: dict[str, str]
    name: str | None = None


class _Meta(Struct):
    dtype: int
    sizes: list[Argument]


class _Graph(Struct):
    inputs: list[Argument]
    outputs: list[Argument]
    nodes: list[_Node]
    tensor_values: dict[str, _Meta]


class _Subgraph(Struct):
    graph: _Graph


LITERALS: dict[str, Any] = {
    "as_int": int,
    "as_ints": list[int],
    "as_float": float,
    "as_floats": list[float],
    "as_bool": bool,
    "as_bools": list[bool],
    "as_string": str,
    "as_strings": list[str],
}


class _Signature(Struct):
    input_specs: list[dict[str, dict[str, Any]]]


class _GraphModule(Struct):
    graph: _Graph
    signature: _Signature


class _Version(Struct):
    major: int


class _Archive(Struct):
    graph_module: _GraphModule
    schema_version: _Version


def read_pt2(path: str | Path) -> Program:
    """The program of an archive that ``torch.export.save`` wrote.

    Raises:
        BadInput: no such file, no such archive, larger than ``MAX_BYTES``, or of another format.
    """
    try:
        document = msgspec.json.decode(_graph_json(Path(path)), type=_Archive)
        if document.schema_version.major != 8:
            raise BadInput(f"format {document.schema_version.major}: expected 8")
        module = document.graph_module
        return ordered(_read(module.graph, _targets(module.signature)))
    except BadInput as error:
        raise error.within(str(path)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"not an exported program: {error}", file=str(path)) from None
    except RecursionError:
        raise BadInput("nested too deeply", file=str(path)) from None


def _graph_json(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((n for n in archive.namelist() if n.endswith(NAMES)), None)
            if name is None:
                raise BadInput("not an exported program: no graph in the archive")
            with archive.open(name) as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"cannot read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise BadInput(f"not an exported program: {error}") from None
    if len(data) > MAX_BYTES:
        raise BadInput(f"a graph larger than {MAX_BYTES} bytes")
    return data


def _targets(signature: _Signature) -> dict[str, str]:
    """Qualified names of parameters, buffers and constants, by the names of their nodes."""
    found: dict[str, str] = {}
    for spec in signature.input_specs:
        for kind, described in spec.items():
            target: Any = described.get(f"{kind}_name")
            argument: Any = described.get("arg")
            if isinstance(target, str) and isinstance(argument, dict):
                found[_name(cast("Argument", argument))] = target
    return found


def _read(graph: _Graph, targets: dict[str, str]) -> Program:
    types = {name: _type(meta) for name, meta in graph.tensor_values.items()}
    nodes: list[Node] = []
    for i, given in enumerate(graph.inputs):
        name = _value_names(given)[0] if _value_names(given) else f"constant_{i}"
        args = {"target": targets.get(name, name)}
        nodes.append(Node(name=name, op="placeholder", args=args, type=types.get(name)))
    for node in graph.nodes:
        nodes += _node(node, types)
    outputs = [_argument(argument) for argument in graph.outputs]
    nodes.append(Node(name="output", op="output", args={"outputs": outputs}))
    return Program(nodes=tuple(nodes))


def _node(node: _Node, types: dict[str, TensorType]) -> list[Node]:
    """A node; one with several results is followed by a ``getitem`` for each."""
    values = [name for output in node.outputs for name in _value_names(output)]
    single = len(node.outputs) == 1 and len(values) == 1 and "as_tensors" not in node.outputs[0]
    single = single and not node.target.startswith("torch.ops.higher_order.")
    name = values[0] if single else node.name or f"_{'_'.join(values)}"
    op, args = _operation(node)
    module = _module(node)
    nodes = [Node(name=name, op=op, args=args, type=types.get(name), module=module)]
    if not single:
        nodes += [
            Node(
                name=value,
                op="getitem",
                args={"self": Ref(name), "index": index},
                type=types.get(value),
                module=module,
            )
            for index, value in enumerate(values)
        ]
    return nodes


def _operation(node: _Node) -> tuple[str, dict[str, Any]]:
    target = node.target.removeprefix("torch.ops.")
    arguments = [_argument(given.arg) for given in node.inputs]
    if not target.startswith("higher_order."):
        op = target if node.target != target else f"python.{target.rpartition('.')[2]}"
        names = [given.name or f"_{i}" for i, given in enumerate(node.inputs)]
        bound = zip(names, arguments, strict=True)
        return op.replace("_autograd.", "."), {k: a for k, a in bound if a is not None}
    return higher_order(target.removeprefix("higher_order."), arguments)


def _argument(tagged: Argument) -> Any:
    """A tagged value: references, literals, lists of either, subgraphs; text for the rest."""
    if len(tagged) != 1:
        raise BadInput(f"expected one tagged value, got keys {sorted(tagged)[:4]}")
    (tag, held), *_ = tagged.items()
    if tag in LITERALS:
        return msgspec.convert(held, LITERALS[tag])
    match tag:
        case "as_none":
            return None
        case "as_graph":
            return _read(msgspec.convert(held, _Subgraph).graph, {})
        case "as_tensor" | "as_sym_int" | "as_sym_bool" | "as_sym_float":
            return _reference(held)
        case "as_tensors" | "as_optional_tensors" | "as_sym_ints":
            return [_reference(item) for item in msgspec.convert(held, list[Argument])]
        case _:
            return str(held)


def _reference(held: Any) -> Any:
    """A tensor's or symbol's name, or the literal in its place."""
    if not isinstance(held, dict):
        raise BadInput(f"expected a value's name, got {str(held)[:64]!r}")
    item = cast("Argument", held)
    if "as_none" in item:
        return None
    for key in ("as_int", "as_bool", "as_float"):
        if key in item:
            return item[key]
    return Ref(_name(item))


def _name(argument: Argument) -> str:
    inner: Any = argument.get("as_tensor", argument)
    names = cast("Argument", inner) if isinstance(inner, dict) else {}
    name = names.get("name", names.get("as_name"))
    if not isinstance(name, str):
        raise BadInput(f"expected a value's name, got keys {sorted(argument)[:4]}")
    return name


def _value_names(output: Argument) -> list[str]:
    """Names of the values that an output or input declares."""
    found = _argument(output)
    items = cast("list[Any]", found) if isinstance(found, list) else [found]
    return [item.name for item in items if isinstance(item, Ref)]


def _type(meta: _Meta) -> TensorType:
    return TensorType(tuple(map(_size, meta.sizes)), DTYPES.get(meta.dtype, str(meta.dtype)))


def _size(tagged: Argument) -> Size:
    size: Any = tagged.get("as_int")
    return size if isinstance(size, int) else str(tagged.get("as_expr"))


def _module(node: _Node) -> str:
    """Path of the innermost module that ran a node; '' for the outermost."""
    innermost = node.metadata.get("nn_module_stack", "").split(";")[-1].split(",")
    path = innermost[1] if len(innermost) > 2 else ""
    return "" if path.startswith("_empty_nn_module_stack") else path
