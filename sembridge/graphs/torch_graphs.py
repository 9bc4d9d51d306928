"""Programs read off torch: exported programs, FX graphs of ATen operators, modules.

The one boundary to torch, which is imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from sembridge.errors import BadInput
from sembridge.graphs.derive import CutFacts, facts_at
from sembridge.graphs.mesh import RankMesh
from sembridge.graphs.program import Node, Program, Ref, TensorType, higher_order, ordered

INSTALL = "pip install 'sembridge[torch]'"


def import_torch() -> Any:
    """The torch package.

    Raises:
        BadInput: it is not installed, or does not start; names the extra to install.
    """
    try:
        return importlib.import_module("torch")
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise BadInput(f"torch graphs need torch ({INSTALL}): {reason[0]}") from None


def program_of(source: Any) -> Program:
    """An ``ExportedProgram``, or a ``GraphModule`` or ``Graph`` of ATen operators, as a program.

    Raises:
        BadInput: torch is missing, or the source is none of these.
    """
    torch = import_torch()
    if isinstance(source, torch.export.ExportedProgram):
        signature = source.graph_signature
        targets = {
            spec.arg.name: spec.target
            for spec in signature.input_specs
            if spec.target is not None and hasattr(spec.arg, "name")
        }
        return ordered(_read(source.graph, source.graph_module, targets))
    if isinstance(source, torch.fx.GraphModule):
        return ordered(_read(source.graph, source, {}))
    raise BadInput(f"expected an exported program or a graph module, got {type(source).__name__}")


def export(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Program:
    """Export a module on example arguments, functionalised where it writes in place.

    Raises:
        BadInput: torch is missing or cannot export the module.
    """
    torch = import_torch()
    try:
        exported = torch.export.export(module, tuple(args), dict(kwargs or {}))
        if any(_writes(node.target) for node in exported.graph.nodes):
            exported = exported.run_decompositions({})
    except Exception as error:  # torch raises many kinds, its own and bare ones
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(f"torch.export cannot export {type(module).__name__}: {first}") from error
    return program_of(exported)


@contextmanager
def as_rank(rank: int, ranks: int) -> Generator[None]:
    """Stand in for one rank of a group: a process group that communicates with nobody.

    Graphs call it ``"0"``. For exporting and compiling only; what collectives return is unset.

    Raises:
        BadInput: torch is missing, or a process group exists already.
    """
    import_torch()
    distributed = importlib.import_module("torch.distributed")
    if distributed.is_initialized():
        raise BadInput("a process group exists already: export under it, or destroy it first")
    hook = sys.excepthook  # torch prefixes every rank's tracebacks, and never takes it back
    fake = importlib.import_module("torch.testing._internal.distributed.fake_pg")
    distributed.init_process_group("fake", store=fake.FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        distributed.destroy_process_group()
        sys.excepthook = hook


def module_facts(module: Any, args: Sequence[Any], mesh: RankMesh, cut: str) -> CutFacts:
    """The facts at a cut of a module that is written with functional collectives.

    ``module`` is exported as it is, which ``mesh.same_program`` has to vouch for; or it is a
    function from a rank to that rank's module, and each one is built and exported as its rank
    (:func:`as_rank`). The cut is a node's name or a submodule's path.

    Raises:
        BadInput: torch is missing or cannot export the module; no such cut; as
            :func:`~sembridge.graphs.derive.facts_at`.
    """
    torch = import_torch()
    if isinstance(module, torch.nn.Module):
        return facts_at([export(module, args)], mesh, cut)
    mesh.check()
    ranks = mesh.groups[mesh.group].ranks
    programs: list[Program] = []
    for rank in range(ranks):
        with as_rank(rank, ranks):
            programs.append(export(module(rank), args))
    return facts_at(programs, mesh, cut)


def _writes(target: Any) -> bool:
    return bool(getattr(getattr(target, "_schema", None), "is_mutable", False))


def _read(graph: Any, owner: Any, targets: Mapping[str, str]) -> Program:
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "get_attr" and _is_graph(_attribute(owner, node.target)):
            continue
        nodes.append(_node(node, owner, targets))
    return Program(nodes=tuple(nodes))


def _node(node: Any, owner: Any, targets: Mapping[str, str]) -> Node:
    op, args = _operation(node, owner, targets)
    return Node(
        name=node.name, op=op, args=args, type=_type(node.meta.get("val")), module=_module(node)
    )


def _operation(node: Any, owner: Any, targets: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    torch = import_torch()
    match node.op:
        case "placeholder":
            return "placeholder", {"target": targets.get(node.name, str(node.target))}
        case "get_attr":
            return "constant", {"target": str(node.target)}
        case "output":
            outputs = _argument(node.args[0], owner)
            return "output", {"outputs": outputs if isinstance(outputs, list) else [outputs]}
        case "call_function":
            pass
        case other:
            return f"{other}.{node.target}", {"operands": _argument(list(node.args), owner)}
    target = node.target
    if target is importlib.import_module("operator").getitem:
        return "getitem", {
            "self": _argument(node.args[0], owner),
            "index": _argument(node.args[1], owner),
        }
    if isinstance(target, torch._ops.HigherOrderOperator):
        return higher_order(target.name(), [_argument(a, owner) for a in node.args])
    schema = getattr(target, "_schema", None)
    if schema is None:
        name = getattr(target, "__name__", str(target))
        op = f"python.{name}"
        return op, {"operands": _argument([*node.args, *node.kwargs.values()], owner)}
    names = [argument.name for argument in schema.arguments]
    bound = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    name = schema.name.replace("::", ".").replace("_autograd.", ".", 1)
    op = f"{name}.{schema.overload_name or 'default'}"
    return op, {key: _argument(value, owner) for key, value in bound.items() if value is not None}


def _argument(argument: Any, owner: Any) -> Any:
    torch = import_torch()
    if isinstance(argument, torch.fx.Node):
        if argument.op == "get_attr":
            found = _attribute(owner, argument.target)
            if _is_graph(found):
                return _read(found.graph, found, {})
        return Ref(argument.name)
    if isinstance(argument, tuple | list):
        return [_argument(item, owner) for item in cast("Sequence[Any]", argument)]
    if isinstance(argument, bool | int | float | str) or argument is None:
        return argument
    return str(argument)


def _is_graph(found: Any) -> bool:
    return isinstance(found, import_torch().fx.GraphModule)


def _attribute(owner: Any, path: str) -> Any:
    found = owner
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _type(value: Any) -> TensorType | None:
    torch = import_torch()
    if isinstance(value, torch.Tensor):
        shape = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
        return TensorType(shape, str(value.dtype).removeprefix("torch."))
    return None


def _module(node: Any) -> str:
    """Path of the innermost module that ran a node; '' for the outermost."""
    stack: Any = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    return path.removeprefix("L['self']").lstrip(".")
