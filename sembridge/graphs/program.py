"""One rank's program, read off a torch graph: nodes with named arguments, shapes and dtypes.

Free of torch, so that the interpretation is too. Programs of several ranks merge into one in
which a literal that differs between ranks is :class:`Varying`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from sembridge.errors import BadInput

Size = int | str
"""Length of an axis; the text of a symbol where it is dynamic."""


class Ref(Struct, frozen=True, gc=False):
    """An argument that is another node's value."""

    name: str


class Varying(Struct, frozen=True):
    """A literal that differs between ranks, in rank order."""

    values: tuple[Any, ...]


class TensorType(Struct, frozen=True, gc=False):
    """Local shape and dtype of one tensor."""

    shape: tuple[Size, ...]
    dtype: str


class Node(Struct, frozen=True, kw_only=True):
    """One node: ``op`` is ``placeholder``, ``constant``, ``output``, ``getitem`` or an operator.

    ``args`` are by the operator's own argument names, defaults left out; a placeholder and a
    constant tensor have their qualified name as ``target``. ``type`` is None where the node is no
    single tensor. ``module`` is the path of the module that ran it.
    """

    name: str
    op: str
    args: dict[str, Any]
    type: TensorType | None = None
    module: str = ""

    @property
    def is_input(self) -> bool:
        """Whether its value comes from outside of the graph."""
        return self.op in ("placeholder", "constant")

    @property
    def packet(self) -> str:
        """The operator without its overload: ``aten.add`` of ``aten.add.Tensor``."""
        return ".".join(self.op.split(".")[:2])


class Program(Struct, frozen=True, kw_only=True, dict=True):
    """Nodes in an order in which each follows what it reads."""

    nodes: tuple[Node, ...]

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def order(self) -> dict[str, int]:
        """Positions by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    def find(self, cut: str) -> Node:
        """The node called ``cut``, or the last one that the module at path ``cut`` ran.

        Raises:
            BadInput: there is no such node or module; the nearest names are listed.
        """
        if cut in self.by_name:
            return self.by_name[cut]
        inside = [n for n in self.nodes if n.module == cut or n.module.startswith(f"{cut}.")]
        if inside:
            return inside[-1]
        known = [*self.by_name, *dict.fromkeys(n.module for n in self.nodes if n.module)]
        near = ", ".join(get_close_matches(cut, known, n=4)) or "none is near"
        raise BadInput(f"no node or module {cut!r} in the graph ({near})", path="--cut")

    def ancestors(self, name: str) -> set[str]:
        """The node and everything that its value is computed from."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            at = waiting.pop()
            if at not in seen and at in self.by_name:
                seen.add(at)
                waiting += [ref.name for ref in refs(self.by_name[at].args)]
        return seen


def ordered(program: Program) -> Program:
    """The program itself, once its names are unique and each node follows what it reads.

    Raises:
        BadInput: they are not, or it does not.
    """
    seen: set[str] = set()
    for node in program.nodes:
        for argument in node.args.values():
            if isinstance(argument, Program):
                ordered(argument)
        if stray := next((r.name for r in refs(node.args) if r.name not in seen), None):
            raise BadInput(f"node {node.name!r} reads {stray!r}, which no node before it makes")
        if node.name in seen:
            raise BadInput(f"two nodes are called {node.name!r}")
        seen.add(node.name)
    return program


def refs(argument: Any) -> Iterator[Ref]:
    """Every reference in an argument, depth first."""
    if isinstance(argument, Ref):
        yield argument
    elif isinstance(argument, dict):
        for item in cast("dict[str, Any]", argument).values():
            yield from refs(item)
    elif isinstance(argument, list | tuple):
        for item in cast("Sequence[Any]", argument):
            yield from refs(item)


def varies(argument: Any) -> bool:
    """Whether a literal in the argument differs between ranks."""
    if isinstance(argument, dict):
        return any(map(varies, cast("dict[str, Any]", argument).values()))
    if isinstance(argument, list | tuple):
        return any(map(varies, cast("Sequence[Any]", argument)))
    if isinstance(argument, Program):
        return any(varies(node.args) for node in argument.nodes)
    return isinstance(argument, Varying)


def merge(programs: Sequence[Program]) -> Program:
    """The programs of all ranks as one, its differing literals marked.

    Where ranks read different nodes, a node between stands for the choice: the item of one list
    that each rank takes, or a choice that no rule knows.

    Raises:
        BadInput: they differ in their nodes' operators or shapes.
    """
    first, *others = programs
    if not others:
        return first
    for rank, program in enumerate(others, 1):
        if len(program.nodes) != len(first.nodes):
            raise BadInput(
                f"rank {rank} runs {len(program.nodes)} nodes, rank 0 {len(first.nodes)}"
            )
    merged = _Merge(programs)
    for same in zip(*(program.nodes for program in programs), strict=True):
        node = same[0]
        if any(n != node for n in same):
            if len({(n.name, n.op, n.type, n.module) for n in same}) > 1:
                raise BadInput(f"node {node.name!r} is not the same operation on every rank")
            args = cast("dict[str, Any]", merged.argument([n.args for n in same]))
            node = replace(node, args=args)
        merged.nodes.append(node)
    return Program(nodes=tuple(merged.nodes))


class _Merge:
    """Merged arguments, and the nodes so far: a choice comes before the node that reads it."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        self.nodes: list[Node] = []

    def argument(self, arguments: list[Any]) -> Any:
        """One argument as each rank has it."""
        first = arguments[0]
        if all(a == first for a in arguments):
            return first
        kinds: set[type] = {type(a) for a in arguments}
        if kinds == {Program}:
            return merge(arguments)
        if kinds == {Ref}:
            return self.choice(arguments)
        if kinds == {dict} and all(a.keys() == first.keys() for a in arguments):
            return {key: self.argument([a[key] for a in arguments]) for key in first}
        if kinds == {list} and all(len(a) == len(first) for a in arguments):
            return [self.argument(list(items)) for items in zip(*arguments, strict=True)]
        return Varying(tuple(arguments))

    def choice(self, chosen: list[Ref]) -> Ref:
        """A node for what each rank reads."""
        read = [p.by_name[ref.name] for p, ref in zip(self.programs, chosen, strict=True)]
        name = f"choice_{len(self.nodes)}"
        sources = {n.args["self"] if n.op == "getitem" else None for n in read}
        source = sources.pop()
        if source is None or sources:
            node = Node(name=name, op="ranks.choose", args={"of": chosen})
        else:
            args = {"self": source, "index": self.argument([n.args["index"] for n in read])}
            node = Node(name=name, op="getitem", args=args, type=read[0].type)
        self.nodes.append(node)
        return Ref(name)


def higher_order(name: str, arguments: list[Any]) -> tuple[str, dict[str, Any]]:
    """A higher-order operator: its subgraphs, and the operands that they run on."""
    op = f"hop.{name}"
    if op == "hop.cond" and len(arguments) == 4:
        return op, dict(zip(("pred", "true", "false", "operands"), arguments, strict=True))
    at = next((i for i, a in enumerate(arguments) if isinstance(a, Program)), len(arguments))
    body = {"body": arguments[at]} if at < len(arguments) else {}
    return op, {**body, "operands": arguments[at + 1 :]}
