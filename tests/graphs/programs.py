"""Small programs and meshes for tests, without torch."""

from __future__ import annotations

from typing import Any

from sembridge.contract import Domain, Producer
from sembridge.graphs.derive import Derivation, interpret
from sembridge.graphs.lattice import Element
from sembridge.graphs.mesh import Group, Lanes, RankMesh
from sembridge.graphs.program import Node, Program, Ref, TensorType
from sembridge.layout import Partial, Placement, Replicate, Shard

REPLICATE = Replicate()
SUM = Partial(op="sum")
MAX = Partial(op="maximum")
PLACEMENTS: tuple[Placement | None, ...] = (
    None,
    REPLICATE,
    Shard(dim=0),
    Shard(dim=1),
    SUM,
    MAX,
)


def element(placement: Placement | None, by: str = "x", completed: str | None = None) -> Element:
    return Element(group="tp", placement=placement, by=by, completed=completed)


def tensor(name: str, *shape: int, dtype: str = "float32") -> Node:
    return Node(name=name, op="placeholder", args={"target": name}, type=TensorType(shape, dtype))


def node(name: str, op: str, *shape: int, dtype: str = "float32", **args: Any) -> Node:
    """``self_`` stands for the argument called self; strings that start with % are references."""
    return Node(
        name=name,
        op=op,
        args={key.removesuffix("_"): _argument(value) for key, value in args.items()},
        type=TensorType(shape, dtype),
    )


def _argument(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("%"):
        return Ref(value[1:])
    if isinstance(value, list):
        return [_argument(item) for item in value]
    return value


def derived(inputs: dict[str, Placement | None], *nodes: Node, ranks: int = 2) -> Derivation:
    program = Program(nodes=nodes)
    elements = {name: element(placement, name) for name, placement in inputs.items()}
    return interpret(program, elements, "tp", {"tp", "0"}, ranks)


def mesh(
    placements: dict[str, Placement], *, ranks: int = 2, same_program: bool = True
) -> RankMesh:
    """``ranks`` producers in domain ``a`` and as many consumers in domain ``b``."""
    lanes = range(ranks)
    return RankMesh(
        groups={"tp": Group(ranks=ranks, names=("0",), placements=placements)},
        group="tp",
        domains={"a": Domain(stack="cann"), "b": Domain(stack="cuda")},
        producers=tuple(Producer(id=f"p{i}", domain="a") for i in lanes),
        consumers=tuple(Lanes(id=f"c{i}", domain="b", source=f"p{i}") for i in lanes),
        kind="hidden",
        same_program=same_program,
    )
