"""What is derived, held against what the ranks compute: every node of every module, in numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graphs.programs import REPLICATE, SUM, mesh

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `torch` has it")

from sembridge.graphs.derive import derive, facts_at  # noqa: E402
from sembridge.graphs.lattice import Element  # noqa: E402
from sembridge.graphs.program import merge  # noqa: E402
from sembridge.graphs.torch_graphs import as_rank, program_of  # noqa: E402
from sembridge.layout import Partial, Shard  # noqa: E402
from tests.graphs import modules  # noqa: E402

TP = (1, 2, 4)


def exported(kind: str, tp: int) -> list[Any]:
    """Each rank's exported program."""
    found = []
    for rank in range(tp):
        with as_rank(rank, tp):
            module = modules.BUILD[kind](tp, rank)
            found.append(torch.export.export(module, modules.inputs(kind)))
    return found


def lockstep(programs: list[Any], weights: dict[str, Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Run all ranks node by node, collectives by their definition; each rank's value of a node."""
    graphs = [list(p.graph.nodes) for p in programs]
    signature = programs[0].graph_signature.inputs_to_parameters
    values: list[dict[str, Any]] = [{} for _ in programs]
    user = iter(args)
    for same in zip(*graphs, strict=True):
        node = same[0]
        if node.op == "placeholder":
            name = signature.get(node.name)
            if name is None:
                given = [next(user)] * len(programs)
            else:
                placement = placed(name)
                given = (
                    list(weights[name].chunk(len(programs), placement.dim))
                    if isinstance(placement, Shard)
                    else [weights[name]] * len(programs)
                )
        elif node.op == "output":
            break
        else:
            operands = [
                torch.fx.map_arg((n.args, n.kwargs), lambda a, r=r: values[r][a.name])
                for r, n in enumerate(same)
            ]
            given = step(node.target, operands)
        for rank, value in enumerate(given):
            values[rank][node.name] = value
    return {name: [v[name] for v in values] for name in values[0]}


def step(target: Any, operands: list[Any]) -> list[Any]:
    name = str(target)
    first = [args[0] for args, _ in operands]
    if "c10d_functional.all_reduce" in name:
        return [torch.stack(first).sum(0)] * len(first)
    if "c10d_functional.all_gather_into_tensor" in name:
        return [torch.cat(first)] * len(first)
    if "wait_tensor" in name:
        return first
    return [target(*args, **kwargs) for args, kwargs in operands]


def placed(name: str) -> Any:
    from fnmatch import fnmatchcase

    return next(p for key, p in modules.PLACEMENTS.items() if fnmatchcase(name, key))


@pytest.mark.parametrize("tp", TP[1:])
@pytest.mark.parametrize("kind", modules.BUILD)
def test_every_claim_holds_in_numbers(kind: str, tp: int) -> None:
    """Replicas are equal, blocks join and addends add up to what one rank computes alone."""
    torch.manual_seed(0)
    whole = modules.BUILD[kind](1, 0)
    weights = {name: w.detach() for name, w in whole.named_parameters()}
    args = modules.inputs(kind)
    alone = {k: v[0] for k, v in lockstep(exported(kind, 1), weights, args).items()}
    ranks = exported(kind, tp)
    programs = [program_of(p) for p in ranks]
    program = merge(programs)
    derivation = derive(program, mesh(modules.placements(program), ranks=tp))
    values = lockstep(ranks, weights, args)
    claims = 0
    for name, state in derivation.states.items():
        if not isinstance(state, Element) or not isinstance(values[name][0], torch.Tensor):
            continue
        held = values[name]
        if state.placement == REPLICATE:
            assert all(torch.equal(held[0], other) for other in held), name
        reference = alone.get(twin(name, alone, program))
        if reference is None or state.placement is None:
            continue
        claims += 1
        torch.testing.assert_close(combined(state, held), reference, msg=f"{name}: {state}")
    assert claims >= (5 if kind == "head" else len(values) // 2)


def twin(name: str, alone: dict[str, Any], program: Any) -> str:
    """The node of one rank's program that this one stands for; an all_reduce is a clone there."""
    reduces = [n.name for n in program.nodes if "all_reduce" in n.op]
    if name in reduces:
        return [n for n in alone if n.startswith("clone")][reduces.index(name)]
    gathered = any("all_gather" in n.op for n in program.nodes)
    return "" if gathered and name.startswith(("chunk", "getitem", "cat")) else name


def combined(state: Element, held: list[Any]) -> Any:
    if isinstance(state.placement, Shard):
        return torch.cat(held, state.placement.dim)
    if state.placement == SUM:
        return torch.stack(held).sum(0)
    assert not isinstance(state.placement, Partial)
    return held[0]


@pytest.mark.parametrize("kind", modules.BUILD)
def test_less_knowledge_of_an_input_never_gives_more_of_a_node(kind: str) -> None:
    """Monotone: with an input unknown, a node keeps its placement or becomes unknown."""
    program = merge([program_of(p) for p in exported(kind, 2)])
    known = modules.placements(program)
    full = derive(program, mesh(known))
    for name in known:
        poorer = derive(program, mesh({k: p for k, p in known.items() if k != name}))
        for node, state in poorer.states.items():
            if isinstance(state, Element) and state.placement is not None:
                assert state.placement == full.states[node].placement, (name, node)


def test_a_rank_dependent_literal_is_not_a_replica() -> None:
    """Each rank subtracts its own first id; one rank's program alone would not show it."""
    programs = [program_of(p) for p in exported("head", 2)]
    merged = derive(merge(programs), mesh(modules.placements(programs[0])))
    assert merged.at("sub").placement is None
    assert "differs between ranks" in merged.at("sub").why
    alone = facts_at(
        programs[:1], mesh(modules.placements(programs[0]), same_program=False), "head"
    )
    assert alone.facts.replica_classes is None
    assert "same_program" in alone.missing
