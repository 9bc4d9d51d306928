"""Plans to switches: the paper's configurations arise, and nothing else is taken for one."""

from __future__ import annotations

import json
import pathlib

import hypothesis.strategies as st
import pytest
from hypothesis import event, given
from msgspec.structs import replace

from experiments.real_edges import load_model
from sembridge.check import check
from sembridge.coalesce import graph_cost
from sembridge.contract import Contract, Domain
from sembridge.errors import PlanRejected
from sembridge.live.mapper import Aggregation, Inexpressible, Path, Switches, map_plans
from sembridge.lowering import LADDER, REFERENCE, SEMANTIC, Policy, lower
from sembridge.models import Deployment, ModelFacts, model_edges, result_edge
from sembridge.obligations import resolve_valid
from sembridge.plan import AllGather, Broadcast, Part, Plan, Project, Send
from sembridge.surfaces import Choice, ChosenTokens, Complete, Logprobs, Surface, Tokens
from sembridge.verdict import Verdict
from tests.core.build import contract, plan
from tests.strategies import plans, valid_contracts

MAPPED, SLICES = Aggregation.MAPPED, Aggregation.SLICES
ONE = Aggregation.REPRESENTATIVE
MINIMAX = load_model("minimax-m2.7")


def pair(edge: Contract, policy: Policy = SEMANTIC):
    return resolve_valid(edge), lower(edge, policy)


def forwards(tp: int = 2, **facts):
    kinds = ("hidden", "residual")
    return [contract(tp, name=kind, shape=(2, 64), dtype="bfloat16", **facts) for kind in kinds]


def back(tp: int = 2, **facts) -> Contract:
    """A result edge, against the forward edges' direction."""
    edge = contract(tp, name="result", shape=(2, 1000), **facts)
    other = {"h": "t", "t": "h"}
    return replace(
        edge,
        producers=tuple(replace(p, domain=other[p.domain]) for p in edge.producers),
        consumers=tuple(replace(c, domain=other[c.domain]) for c in edge.consumers),
    )


def lanes(tp: int) -> tuple[tuple[str, ...], ...]:
    return (tuple(f"p{i}" for i in range(tp)),)


def alone(tp: int) -> tuple[tuple[str, ...], ...]:
    return tuple((f"p{i}",) for i in range(tp))


def mapped(forward, result) -> Switches:
    return map_plans([pair(e) for e in forward], [pair(result)])


def names(switches: Switches) -> tuple[Aggregation, Aggregation, bool]:
    return switches.forward_aggregation, switches.result_aggregation, switches.result_fanout


@pytest.mark.parametrize("tp", [2, 3, 4])
def test_the_papers_configurations_arise_from_contracts(tp):
    lineage, none = forwards(tp, classes=lanes(tp)), forwards(tp)
    each = forwards(tp, classes=alone(tp))
    token, logprobs = back(tp, surface=Tokens()), back(tp, surface=Logprobs())
    owned = back(tp, surface=Tokens(), owner=(f"p{tp - 1}",))
    found = {
        "L0 R0": names(mapped(none, logprobs)),
        "L0 P0": names(mapped(none, token)),
        "S0 P0 (C0)": names(mapped(lineage, token)),
        "S0 S1 (C5)": names(mapped(lineage, owned)),
        "C1": names(mapped(each, token)),
    }
    assert found == {
        "L0 R0": (SLICES, SLICES, False),
        "L0 P0": (SLICES, MAPPED, False),
        "S0 P0 (C0)": (ONE, MAPPED, False),
        "S0 S1 (C5)": (ONE, ONE, True),
        "C1": (MAPPED, MAPPED, False),
    }


def test_where_a_decision_is_projected_follows_the_plan():
    result = mapped(forwards(4), back(4, surface=Logprobs())).result
    assert (result.surface, result.project_at) == ("value", ("c0", "c1", "c2", "c3"))
    result = mapped(forwards(4), back(4, surface=Tokens(), owner=("p3",))).result
    assert result == Path(
        aggregation=ONE,
        lanes=(("p3", "c0"),),
        fanout=("c1", "c2", "c3"),
        surface="tokens",
        projection="argmax",
        project_at=("p3",),
    )
    reference = pair(back(4, surface=Tokens()), REFERENCE)
    result = map_plans([pair(e) for e in forwards(4)], [reference]).result
    assert (result.aggregation, result.project_at) == (SLICES, ("c0", "c1", "c2", "c3"))


FRAMES = {
    "C1": (LADDER[0], None, (2, 2)),
    "C0": (SEMANTIC, None, (1, 2)),
    "C5": (SEMANTIC, 1, (1, 1)),
}
"""Policy and owner of the paper's replica-scaling configurations, and our frames per step."""


@pytest.mark.parametrize("name", FRAMES)
def test_frames_per_step_at_tp2(name):
    """Forward pairs leave as one frame, as the paper counts them: 2, 1, 1.

    Of results the paper's earlier frame format counts two for each decision sent: 4, 4, 2.
    """
    facts = json.loads((pathlib.Path(__file__).parent.parent / "data" / "facts.json").read_text())
    policy, owner, ours = FRAMES[name]
    deployment = Deployment(tp=2, owner=owner)
    edges = {k: e.contract() for k, e in model_edges(MINIMAX, deployment).items()}
    forward = [(edges[k], lower(edges[k], policy)) for k in ("hidden", "residual")]
    result = [(edges["result"], lower(edges["result"], policy))]
    assert (graph_cost(forward).cross_startups, graph_cost(result).cross_startups) == ours
    assert facts["forward_result_frames_per_step_tp2"][name] == [ours[0], 2 * ours[1]]
    switches = map_plans(*[[(resolve_valid(c), p) for c, p in part] for part in (forward, result)])
    assert (len(switches.forward.lanes), len(switches.result.lanes)) == ours


def test_names_and_tags_do_not_reach_the_runtime():
    edges = [*forwards(4, classes=lanes(4)), back(4, surface=Tokens(), owner=("p3",))]
    renamed = [replace(e, name=f"C1-mapped-{i}", tag=None) for i, e in enumerate(edges)]
    assert mapped(edges[:2], edges[2]) == mapped(renamed[:2], renamed[2])


def test_one_lane_needs_neither_slices_nor_fanout():
    switches = mapped(forwards(1, classes=lanes(1)), back(1, surface=Tokens(), owner=("p0",)))
    assert names(switches) == (MAPPED, MAPPED, False)


def test_an_owner_may_serve_every_lane_itself():
    """The third switch is one of its own: off, the owner's decision crosses once for each lane."""
    edge = back(4, surface=Tokens(), owner=("p3",))
    one = [pair(e) for e in forwards(4)]
    assert names(map_plans(one, [pair(edge, LADDER[1])]))[1:] == (ONE, False)
    assert names(map_plans(one, [pair(edge)]))[1:] == (ONE, True)


@pytest.mark.parametrize("count", [0, 2])
def test_exactly_one_edge_returns_decisions(count):
    results = [pair(back(surface=Tokens()))] * count
    with pytest.raises(Inexpressible, match=f"^no runtime.*{count} decision-return edges"):
        map_plans([pair(e) for e in forwards()], results)


def test_hidden_and_residual_share_one_decision():
    hidden, residual = forwards(4, classes=lanes(4))[0], forwards(4)[1]
    with pytest.raises(Inexpressible, match="share one aggregation decision") as caught:
        mapped([hidden, residual], back(4, surface=Tokens()))
    assert caught.value.edge == "residual"
    p0, p1 = forwards(4, classes=lanes(4))
    other = plan(Send(src="p2", dst="c0"), Broadcast(src="c0", dsts=("c1", "c2", "c3")),
                 name="residual")  # fmt: skip
    assert check(p1, other).verdict is Verdict.LEGAL
    with pytest.raises(Inexpressible, match="share one aggregation decision"):
        map_plans([pair(p0), (resolve_valid(p1), other)], [pair(back(4, surface=Tokens()))])


def test_paths_join_two_domains_in_opposite_directions():
    result = back(surface=Tokens())
    with pytest.raises(Inexpressible, match="wrong direction"):
        mapped(forwards(), contract(2, shape=(2, 1000), surface=Tokens()))
    with pytest.raises(Inexpressible, match="two engines"):
        mapped(forwards(4, tails="ttuu"), result)
    with pytest.raises(Inexpressible, match="no forward edge"):
        map_plans([], [pair(result)])


def tokens(src, dst):
    return Send(src=src, dst=dst, surface="tokens")


INEXPRESSIBLE = {
    "two representatives": (
        back(4, surface=Tokens(), classes=lanes(4)),
        (
            *(Project(projection="argmax", at=p) for p in ("p0", "p2")),
            tokens("p0", "c0"),
            tokens("p2", "c2"),
            Broadcast(src="c0", dsts=("c1",), surface="tokens"),
            Broadcast(src="c2", dsts=("c3",), surface="tokens"),
        ),
        1,
    ),
    "projected at one consumer": (
        back(2, surface=Tokens(), owner=("p1",)),
        (
            Send(src="p1", dst="c0"),
            Project(projection="argmax", at="c0"),
            Broadcast(src="c0", dsts=("c1",), surface="tokens"),
        ),
        2,
    ),
    "projected where nothing is sent": (
        back(2, surface=Tokens(), owner=("p1",)),
        (
            Project(projection="argmax", at="p0"),
            Project(projection="argmax", at="p1"),
            tokens("p1", "c0"),
            Broadcast(src="c0", dsts=("c1",), surface="tokens"),
        ),
        0,
    ),
    "one lane serves two, and two serve themselves": (
        forwards(4, classes=lanes(4))[0],
        (*(Send(src=f"p{i}", dst=f"c{j}") for i, j in ((0, 0), (0, 1), (2, 2), (3, 3))),),
        None,
    ),
    "slices gathered by some": (
        back(3, surface=Complete()),
        (
            Send(src="p0", dst="c0", part=Part(index=0, of=2)),
            Send(src="p1", dst="c1", part=Part(index=1, of=2)),
            AllGather(members=("c0", "c1")),
            Broadcast(src="c0", dsts=("c2",)),
        ),
        3,
    ),
}


@pytest.mark.parametrize("name", INEXPRESSIBLE)
def test_legal_plans_that_no_switch_replays(name):
    edge, ops, at = INEXPRESSIBLE[name]
    made = plan(*ops, name=edge.name)
    assert check(edge, made).verdict is Verdict.LEGAL
    one, other = [(resolve_valid(edge), made)], [pair(e) for e in forwards()]
    with pytest.raises(Inexpressible) as caught:
        if edge.name == "hidden":
            map_plans(one, [pair(back(surface=Tokens()))])
        else:
            map_plans(other, one)
    assert (caught.value.edge, caught.value.op) == (edge.name, at)


def test_reductions_and_parameters_have_no_switch():
    with pytest.raises(Inexpressible, match="engine's own"):
        mapped(forwards(reduce="sum"), back(surface=Tokens()))
    choice = Choice(temperature=1.0, seed=3, position=0)
    chosen = back(surface=ChosenTokens(choices=(choice, choice)))
    with pytest.raises(Inexpressible, match="parameters"):
        mapped(forwards(), chosen)


def test_only_accepted_plans_are_mapped():
    edge = back(surface=Tokens(), owner=("p1",))
    wrong = plan(Project(projection="argmax", at="p0"), tokens("p0", "c0"), name="result")
    with pytest.raises(PlanRejected):
        map_plans([pair(e) for e in forwards()], [(resolve_valid(edge), wrong)])


@given(
    data=st.data(),
    tp=st.sampled_from([1, 2, 3, 4, 8]),
    rows=st.integers(0, 9),
    vocab=st.integers(1, 500),
    surface=st.sampled_from([Tokens(), Logprobs(), Complete()]),
    policy=st.sampled_from([SEMANTIC, REFERENCE, *LADDER]),
)
def test_any_models_plans_are_mapped_and_replayed(data, tp, rows, vocab, surface: Surface, policy):
    model = ModelFacts(
        name="any",
        hidden=data.draw(st.integers(1, 64)),
        layers=2,
        heads=tp,
        kv_heads=tp,
        vocab=vocab,
        valid_vocab=data.draw(st.integers(1, vocab)),
        dtype=data.draw(st.sampled_from(["bfloat16", "float32"])),
        intermediate=None,
        tied=False,
    )
    owner = data.draw(st.one_of(st.none(), st.integers(0, tp - 1)))
    deployment = Deployment(tp=tp, rows=rows, owner=owner)
    edges = model_edges(model, deployment) | {"result": result_edge(model, deployment, surface)}
    pairs = {k: pair(e.contract(), policy) for k, e in edges.items()}
    switches = map_plans([pairs["hidden"], pairs["residual"]], [pairs["result"]])
    for path, edge in ((switches.forward, "hidden"), (switches.result, "result")):
        ob, made = pairs[edge]
        replayed = Plan(contract=made.contract, tag=made.tag, ops=tuple(path.ops()))
        assert check(ob.contract, replayed).verdict is Verdict.LEGAL
        assert check(ob.contract, replayed).footprint == check(ob.contract, made).footprint


@given(st.data())
def test_what_is_mapped_replays_as_a_legal_plan(data):
    """Whatever legal plan is taken, the switches perform its very ops; all else is refused."""
    edge = data.draw(valid_contracts(domains=1))
    edge = replace(
        edge,
        domains={d: Domain(stack="cpu") for d in "ht"},
        producers=tuple(replace(p, domain="h") for p in edge.producers),
        consumers=tuple(replace(c, domain="t") for c in edge.consumers),
        facts=replace(edge.facts, surface=None),
    )
    made = data.draw(plans(edge))
    try:
        path = map_plans([(resolve_valid(edge), made)], [pair(back(surface=Tokens()))]).forward
    except (Inexpressible, PlanRejected) as refused:
        event(type(refused).__name__)
        return
    event(str(path.aggregation))
    assert sorted(map(repr, path.ops())) == sorted(map(repr, made.ops))
