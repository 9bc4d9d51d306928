"""Placements as DTensor has them, by module hooks or with the graph that a compiler captures.

A module hook sees what DTensor says a module's output is; it sees no lineage, so a replica is
one by layout. The captured graph has the collectives, so what it derives may be a class.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from sembridge.errors import BadInput
from sembridge.graphs.derive import Derivation, interpret
from sembridge.graphs.lattice import REPLICATE, Element, unknown
from sembridge.graphs.program import Program, Ref, merge
from sembridge.graphs.torch_graphs import import_torch, program_of
from sembridge.graphs.transfer import REDUCTIONS
from sembridge.layout import Partial, Placement, Shard


def element_of(value: Any, group: str, by: str, axis: int = 0) -> Element:
    """What a DTensor is along one axis of its device mesh; any other value is unknown.

    Uneven shards, and reductions that the kit has no operator for, are unknown too.
    """
    import_torch()
    if not isinstance(value, importlib.import_module("torch.distributed.tensor").DTensor):
        return unknown(group, by, "no DTensor")
    placement = value.placements[axis]
    found: Placement | None = None
    if placement.is_replicate():
        found = REPLICATE
    elif placement.is_shard():
        even = value.shape[placement.dim] % value.device_mesh.size(axis) == 0
        found = Shard(dim=placement.dim) if even else None
    elif placement.is_partial() and placement.reduce_op in REDUCTIONS:
        found = Partial(op=REDUCTIONS[placement.reduce_op])
    if found is None:
        return unknown(group, by, f"DTensor placement {placement}")
    return Element(group=group, placement=found, by=by)


def hooked(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *, group: str
) -> dict[str, Element]:
    """Run a parallelized module once; what each submodule's output is, by the module's path.

    A module that returns several values is listed by its first; one that runs twice with
    different placements is unknown.

    Raises:
        BadInput: torch is missing.
    """
    torch = import_torch()
    found: dict[str, Element] = {}

    def listen(path: str) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            element = element_of(_several(output)[0], group, path)
            if path in found and found[path].placement != element.placement:
                element = unknown(group, path, "placed differently from call to call")
            found[path] = element

        return hook

    handles = [m.register_forward_hook(listen(path)) for path, m in module.named_modules()]
    try:
        with torch.no_grad():
            module(*args, **dict(kwargs or {}))
    finally:
        for handle in handles:
            handle.remove()
    return found


class Captured(Struct, frozen=True, kw_only=True):
    """One rank's compiled graph; ``inputs`` are its DTensor inputs, by placeholder.

    ``outputs`` are what the module returned, as DTensor places it, in the order of
    :attr:`results`.
    """

    program: Program
    inputs: dict[str, Element]
    outputs: tuple[Element, ...]

    @property
    def results(self) -> list[str]:
        """The graph's output nodes."""
        return [ref.name for ref in self.program.nodes[-1].args["outputs"]]

    def derive(self, group: str, ranks: int, names: set[str]) -> Derivation:
        """Interpret the graph from its inputs' placements."""
        return interpret(self.program, self.inputs, group, names, ranks)


def capture(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *, group: str
) -> Captured:
    """Compile a parallelized module on this rank and keep the graph, collectives included.

    Run it once as each rank, and :func:`merge_ranks`: one rank's graph has its own blocks'
    indices as literals.

    Raises:
        BadInput: torch is missing, or the module does not compile to one graph.
    """
    torch = import_torch()
    aot = importlib.import_module("torch._functorch.aot_autograd")
    compilers = importlib.import_module("functorch.compile")
    graphs: list[Any] = []
    inputs: list[Any] = []

    def keep(graph: Any, _examples: Any) -> Any:
        graphs.append(graph)
        return compilers.make_boxed_func(graph)

    def backend(graph: Any, examples: Any) -> Any:
        inputs.extend(example for example in examples if isinstance(example, torch.Tensor))
        return aot.aot_module_simplified(graph, examples, fw_compiler=keep)

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            compiled = torch.compile(module, backend=backend, fullgraph=True, dynamic=False)
            returned: Any = compiled(*args, **dict(kwargs or {}))
    except Exception as error:  # torch raises many kinds
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"{type(module).__name__} does not compile to one graph: {reason}"
        ) from error
    if len(graphs) != 1:
        raise BadInput(f"{type(module).__name__} compiles to {len(graphs)} graphs")
    program = _tensors_only(program_of(graphs[0]))
    placeholders = [n for n in program.nodes if n.op == "placeholder"]
    tensors = [n for n in placeholders if n.type is not None]
    if len(tensors) != len(inputs):
        raise BadInput(f"{len(inputs)} inputs became {len(tensors)} tensors of the graph")
    placed = {n.name: unknown(group, n.name, "no tensor") for n in placeholders}
    placed |= {
        n.name: element_of(value, group, n.name) for n, value in zip(tensors, inputs, strict=True)
    }
    return Captured(
        program=program,
        inputs=placed,
        outputs=tuple(
            element_of(v, group, f"output {i}") for i, v in enumerate(_several(returned))
        ),
    )


def merge_ranks(captured: Sequence[Captured]) -> Captured:
    """The captures of all ranks, in rank order, as one whose differing literals are marked."""
    first = captured[0]
    return Captured(
        program=merge([c.program for c in captured]),
        inputs=first.inputs,
        outputs=first.outputs,
    )


def _tensors_only(program: Program) -> Program:
    """Without the device meshes that DTensors carry among constants and outputs."""
    nodes = [n for n in program.nodes if n.op != "constant" or n.type is not None]
    *nodes, output = nodes
    tensors = {n.name for n in nodes if n.type is not None}
    kept = [r for r in output.args["outputs"] if isinstance(r, Ref) and r.name in tensors]
    return Program(nodes=(*nodes, replace(output, args={"outputs": kept})))


def _several(output: Any) -> Sequence[Any]:
    """The values that a module returned; one stands for itself."""
    return (
        cast("Sequence[Any]", output) if isinstance(output, tuple | list) and output else [output]
    )
