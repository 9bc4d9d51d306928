"""The interpretation of a program over one group, and the facts at a cut.

Each node's element is computed once, in order; rules are in :mod:`sembridge.graphs.transfer`.
What the graph does not show stays absent: an unknown value crosses lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from sembridge.contract import BoundaryEdge, GraphFacts, Reduction
from sembridge.errors import BadInput
from sembridge.graphs.lattice import REPLICATE, Element, State, join, unknown
from sembridge.graphs.mesh import Group, RankMesh, inputs_of
from sembridge.graphs.program import Node, Program, Ref, merge, refs, varies
from sembridge.graphs.transfer import RULES, Call, Result, doubt, own_block
from sembridge.layout import Placement, Replicate, Shard

PASSED_THROUGH = {"hop.wrap_with_set_grad_enabled", "hop.wrap_with_autocast"}
"""Higher-order operators that run one subgraph on the operands that follow it."""


class Doubt(Struct, frozen=True, kw_only=True):
    """A collective that contradicts what is known of its operand, and how."""

    node: str
    says: str


class Derivation(Struct, frozen=True, kw_only=True):
    """What is known of every node of ``program`` across ``group``."""

    program: Program
    group: str
    states: dict[str, State]
    doubts: tuple[Doubt, ...]

    def at(self, name: str) -> Element:
        """The element of one node.

        Raises:
            BadInput: the node has several tensors or none.
        """
        state = self.states[name]
        if isinstance(state, tuple) or self.program.by_name[name].type is None:
            raise BadInput(f"node {name!r} is no single tensor", path="--cut")
        return state

    def doubts_before(self, name: str) -> list[Doubt]:
        """The doubts that the value of a node rests on."""
        before = self.program.ancestors(name)
        return [doubt for doubt in self.doubts if doubt.node in before]


class _Run:
    """One pass over a program, and over its subgraphs where it reaches them."""

    def __init__(self, group: str, names: set[str], ranks: int) -> None:
        self.group, self.names, self.ranks = group, names, ranks
        self.doubts: list[Doubt] = []

    def states(self, program: Program, inputs: Mapping[str, Element]) -> dict[str, State]:
        env: dict[str, State] = {}
        overwritten = _overwritten(program)
        for node in program.nodes:
            if node.is_input:
                what = unknown(self.group, node.name, "a tensor that nothing is said of")
                env[node.name] = inputs.get(node.name, what)
            elif node.op != "output":
                env[node.name] = self._node(program, node, env)
            if node.name in overwritten:
                why = "written in place, here or through a view: functionalise the program"
                env[node.name] = unknown(self.group, node.name, why)
        return env

    def _node(self, program: Program, node: Node, env: dict[str, State]) -> State:
        if node.op.startswith("hop."):
            return self._subgraphs(node, env)
        if node.op == "getitem" and not varies(node.args):
            return self._item(node, env)
        entry = RULES.get(node.packet)
        if entry is None and node.op != "getitem":
            return unknown(self.group, node.name, f"no rule for {node.op}")

        def placed(ref: Ref) -> Placement | None:
            state = env[ref.name]
            return state.placement if isinstance(state, Element) else _common(state)

        call = Call(node=node, program=program, placed=placed, group=self.names, ranks=self.ranks)
        if entry is None:
            return self._element(node, own_block(call), env)
        if varies(node.args):
            return unknown(self.group, node.name, "a literal differs between ranks")
        if (scalar := self._other_scalar(program, node, env)) is not None:
            return scalar
        if entry.collective:
            self._collective(node, call)
        try:
            result: Result = entry.rule(call)
        except (LookupError, TypeError, ValueError, ArithmeticError):
            # A symbolic size where the rule computes, or a file whose arguments make no sense.
            return unknown(self.group, node.name, f"arguments that {node.op} has no rule for")
        if isinstance(result, tuple):
            return tuple(self._element(node, placement, env) for placement in result)
        return self._element(node, result, env, collective=entry.collective)

    def _other_scalar(self, program: Program, node: Node, env: dict[str, State]) -> Element | None:
        """The first size or number among the arguments that may differ between ranks."""
        for ref in refs(node.args):
            state, read = env[ref.name], program.by_name[ref.name]
            if read.type is not None or not isinstance(state, Element):
                continue
            if state.placement != REPLICATE and not _block_size(node, read, env):
                return unknown(self.group, state.by, state.why or f"{ref.name} is {state}")
        return None

    def _collective(self, node: Node, call: Call) -> None:
        if call.ours:
            if call.arg("group_size", self.ranks) != self.ranks:
                raise BadInput(
                    f"node {node.name!r} runs over {call.arg('group_size')} ranks",
                    path=f"$.groups.{self.group}.ranks",
                )
            if says := doubt(call):
                self.doubts.append(Doubt(node=node.name, says=says))

    def _element(
        self,
        node: Node,
        placement: Placement | None,
        env: dict[str, State],
        *,
        collective: bool = False,
    ) -> Element:
        """An element with its provenance: that of an operand of its kind, else this node."""
        if collective and isinstance(placement, Replicate):
            return Element(group=self.group, placement=placement, by=node.name, completed=node.name)
        read = [env[ref.name] for ref in refs(node.args)]
        operands = [s for s in read if isinstance(s, Element)]
        operands += [e for s in read if isinstance(s, tuple) for e in s]
        if placement is None:
            lost = next((o for o in operands if o.placement is None), None)
            if lost is not None and not collective:
                return lost
            kinds = ", ".join(map(str, operands))
            return unknown(self.group, node.name, f"{node.op} of {kinds}")
        alike = [o for o in operands if type(o.placement) is type(placement)]
        if collective or not alike:
            return Element(group=self.group, placement=placement, by=node.name)
        last = max(alike, key=lambda o: self._age(o))
        return Element(group=self.group, placement=placement, by=last.by, completed=last.completed)

    def _age(self, element: Element) -> int:
        """Later collectives name a replica before earlier ones, and these before inputs."""
        return self._position.get(element.completed or "", -1)

    _position: Mapping[str, int] = {}

    def run(self, program: Program, inputs: Mapping[str, Element]) -> dict[str, State]:
        """All states of the outermost program."""
        self._position = program.order
        return self.states(program, inputs)

    def _item(self, node: Node, env: dict[str, State]) -> State:
        state = env[node.args["self"].name]
        if isinstance(state, Element):
            return state
        index = node.args["index"]
        if isinstance(index, int) and 0 <= index < len(state):
            return state[index]
        return unknown(self.group, node.name, "an item that no rule places")

    def _subgraphs(self, node: Node, env: dict[str, State]) -> State:
        """Run one subgraph; or both of a condition that is the same everywhere, and join."""
        bodies = [a for a in node.args.values() if isinstance(a, Program)]
        operands = [self._argument(a, env) for a in node.args.get("operands", [])]
        if node.op in PASSED_THROUGH and len(bodies) == 1:
            return self._outputs(bodies[0], operands)
        if node.op == "hop.cond" and len(bodies) == 2:
            condition = self._argument(node.args["pred"], env)
            if isinstance(condition.placement, Replicate):
                ways = [self._outputs(body, operands) for body in bodies]
                if len(ways[0]) == len(ways[1]):
                    pairs = zip(*ways, strict=True)
                    return tuple(join(a, b, node.name) for a, b in pairs)
            return unknown(self.group, node.name, "ranks may take different branches")
        return unknown(self.group, node.name, f"no rule for {node.op}")

    def _argument(self, argument: Any, env: dict[str, State]) -> Element:
        if isinstance(argument, Ref):
            state = env[argument.name]
            return state if isinstance(state, Element) else unknown(self.group, "", "several")
        return Element(group=self.group, placement=REPLICATE, by="literal")

    def _outputs(self, body: Program, operands: Sequence[Element]) -> tuple[Element, ...]:
        inputs = [n.name for n in body.nodes if n.op == "placeholder"]
        if len(inputs) != len(operands):
            raise BadInput(f"a subgraph of {len(inputs)} inputs runs on {len(operands)} operands")
        states = self.states(body, dict(zip(inputs, operands, strict=True)))
        output = body.nodes[-1].args.get("outputs", [])
        return tuple(self._argument(argument, states) for argument in output)


def _block_size(node: Node, size: Node, env: dict[str, State]) -> bool:
    """Whether a reshape asks for the length of a block, which is no logical size but the same."""
    if node.packet not in RESHAPES or size.packet != "aten.sym_size":
        return False
    state = env[size.args["self"].name]
    return isinstance(state, Element) and isinstance(state.placement, Shard)


RESHAPES = ("aten.view", "aten.reshape", "aten._unsafe_view", "aten.expand", "aten.unflatten")


def _common(state: tuple[Element, ...]) -> Placement | None:
    placements = {e.placement for e in state}
    return placements.pop() if len(placements) == 1 else None


def _overwritten(program: Program) -> set[str]:
    """Nodes whose memory some operator writes, as far as views can share it."""
    written = [n for n in program.nodes if _writes(n)]
    if not written:
        return set()
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := leader.get(name, name)) != name:
            name = above
        return name

    for node in program.nodes:
        entry = RULES.get(node.packet)
        if node.op != "output" and (entry is None or entry.aliases):
            for ref in refs(node.args):
                leader[find(ref.name)] = find(node.name)
    shared = {find(node.name) for node in written}
    return {node.name for node in program.nodes if find(node.name) in shared}


FUNCTIONAL = ("aten", "prims", "_c10d_functional")
"""Namespaces that name what writes in place: ``add_``, or an ``out`` overload."""

STATISTICS = {"aten.batch_norm", "aten.native_batch_norm", "aten._native_batch_norm_legit"}
"""Operators that write in place all the same."""


def _writes(node: Node) -> bool:
    """Whether an operator may write to its operands: one that nothing is known of may."""
    namespace, _, rest = node.op.partition(".")
    if node.is_input or not rest:
        return False
    if node.op in (*PASSED_THROUGH, "hop.cond"):
        bodies = [a for a in node.args.values() if isinstance(a, Program)]
        return any(_writes(inner) for body in bodies for inner in body.nodes)
    if namespace not in FUNCTIONAL:
        return node.packet not in RULES
    name, _, overload = rest.partition(".")
    return name.endswith("_") or "out" in overload.split("_") or node.packet in STATISTICS


def derive(program: Program, mesh: RankMesh, group: str | None = None) -> Derivation:
    """Interpret a program over one group of the mesh (by default the producers').

    Linear in the program's nodes and arguments.

    Raises:
        BadInput: a collective over a group that the mesh does not name, or of another size;
            an entry of the placements that fits no input.
    """
    mesh.check()
    name = group or mesh.group
    _known_groups(program, mesh)
    described: Group = mesh.groups[name]
    placeholders = [n for n in program.nodes if n.is_input]
    targets = {n.name: str(n.args.get("target", n.name)) for n in placeholders}
    ranks = {n.name: len(n.type.shape) if n.type else None for n in placeholders}
    inputs = inputs_of(targets, ranks, name, described)
    return interpret(program, inputs, name, mesh.names(name), described.ranks)


def interpret(
    program: Program, inputs: Mapping[str, Element], group: str, names: set[str], ranks: int
) -> Derivation:
    """:func:`derive` with the placeholders' elements given."""
    run = _Run(group, names, ranks)
    states = run.run(program, inputs)
    return Derivation(program=program, group=group, states=states, doubts=tuple(run.doubts))


def _known_groups(program: Program, mesh: RankMesh) -> None:
    known = {name for group in mesh.groups for name in mesh.names(group)}
    for node in _every_node(program):
        over = node.args.get("group_name")
        if over is not None and over not in known:
            raise BadInput(
                f"node {node.name!r} runs over group {over!r}, which the mesh does not name",
                path="$.groups",
            )


def _every_node(program: Program) -> Iterable[Node]:
    for node in program.nodes:
        yield node
        for argument in node.args.values():
            if isinstance(argument, Program):
                yield from _every_node(argument)


class CutFacts(Struct, frozen=True, kw_only=True):
    """What the graph says of the value at one cut.

    ``element`` is what the interpretation found; ``placement`` and ``facts`` are what of it goes
    into the contract, and ``missing`` says why that is less, where it is.
    """

    node: str
    module: str
    shape: tuple[int, ...]
    dtype: str
    element: Element
    placement: Placement
    facts: GraphFacts
    missing: str = ""


def facts_at(programs: Sequence[Program], mesh: RankMesh, cut: str) -> CutFacts:
    """The facts at a cut: the node called so, or the last node of the module at that path.

    ``programs`` is each rank's own, in rank order, or one that ``mesh.same_program`` vouches for.
    A replica that a collective completed is a class; a partial names its reduction; a shard
    keeps its lanes. Everything else has no facts, and crosses lane by lane.

    Raises:
        BadInput: no such cut, a dynamic shape there, or a mesh that does not fit the graph.
    """
    mesh.check()
    ranks = mesh.groups[mesh.group].ranks
    if len(programs) not in (1, ranks):
        raise BadInput(f"{len(programs)} programs for {ranks} ranks", path="--graph")
    program = merge(programs)
    node = program.find(cut)
    derivation = derive(program, mesh)
    element = derivation.at(node.name)
    shape, dtype = _static(node)
    missing = _missing(derivation, mesh, node.name)
    if len(programs) != ranks and not mesh.same_program:
        missing = "one rank's program: nothing says that the others run the same (same_program)"
    placement, facts = _contract_facts(element, node, program, mesh, bool(missing))
    return CutFacts(
        node=node.name,
        module=node.module,
        shape=shape,
        dtype=dtype,
        element=element,
        placement=placement,
        facts=facts,
        missing=missing,
    )


def _static(node: Node) -> tuple[tuple[int, ...], str]:
    if node.type is None:
        raise BadInput(f"node {node.name!r} is no tensor", path="--cut")
    shape = tuple(size for size in node.type.shape if isinstance(size, int))
    if len(shape) != len(node.type.shape):
        raise BadInput(
            f"node {node.name!r} has a dynamic shape {node.type.shape}: export with fixed sizes",
            path="--cut",
        )
    return shape, node.type.dtype


def _missing(derivation: Derivation, mesh: RankMesh, name: str) -> str:
    """Why nothing may be said at a node, or nothing."""
    element = derivation.at(name)
    if element.placement is None:
        return f"unknown since {element.by}: {element.why}"
    if doubts := derivation.doubts_before(name):
        return f"{doubts[0].node} {doubts[0].says}"
    for other in mesh.groups:
        if other != mesh.group:
            across = derive(derivation.program, mesh, other).at(name)
            if not isinstance(across.placement, Replicate | Shard):
                return f"{across} across {other}"
    return ""


def _contract_facts(
    element: Element, node: Node, program: Program, mesh: RankMesh, withheld: bool
) -> tuple[Placement, GraphFacts]:
    if element.placement is None or withheld:
        return _lane_by_lane(node), GraphFacts()
    producers = tuple(p.id for p in mesh.producers)
    by = _where(element.completed or element.by, program)
    match element.placement:
        case Replicate():
            classes = (producers,) if element.completed else None
            return REPLICATE, GraphFacts(replica_classes=classes, by=by)
        case Shard():
            return element.placement, GraphFacts(by=by)
        case partial:
            reduction = Reduction(op=partial.op, sources=producers)
            return partial, GraphFacts(reduction=reduction, by=by)


def _lane_by_lane(node: Node) -> Placement:
    """Of the placements the one that authorizes least: no substitute, no slices, no projection."""
    if node.type is None or not node.type.shape:
        raise BadInput(f"nothing is known of the scalar {node.name!r}", path="--cut")
    return Shard(dim=len(node.type.shape) - 1)


def _where(name: str, program: Program) -> str:
    """A node for people: its operator, and the module that ran it."""
    node = program.by_name.get(name)
    if node is None or node.is_input:
        return name
    operator = node.packet.split(".")[-1]
    return f"{operator} {name}" + (f" in {node.module}" if node.module else "")


def edge_at(found: CutFacts, mesh: RankMesh, name: str | None = None) -> BoundaryEdge:
    """The boundary edge that crosses at a cut."""
    return BoundaryEdge(
        name=name or found.node,
        value=mesh.value(found.shape, found.dtype),
        domains=mesh.domains,
        producers=mesh.producers,
        consumers=mesh.lanes(),
        placement=found.placement,
        lifetime="token",
    )
