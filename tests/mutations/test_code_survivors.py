"""Tests that the code mutants asked for: what the rest of the suite let through, it misses here.

Guards by their truth tables, and every plan and verdict of a broad campaign against golden
files, so that a change of a message, an index or an endpoint shows as well.
"""

from __future__ import annotations

import re
from itertools import product

import msgspec
import pytest

from experiments.mutations import SOURCES, subjects
from mutations.campaign import Options, Task, generate
from mutations.subjects import Subject
from sembridge import guards as g
from sembridge.check import CHECKER, Checker, Report, check
from sembridge.draw import describe
from sembridge.errors import BadInput
from sembridge.layout import Partial, Shard
from sembridge.lowering import POLICIES, lower, lower_valid
from sembridge.obligations import resolve, validate
from sembridge.plan import AllGather, Broadcast, Part, Project, Reduce, Send, Tag
from sembridge.rules import RULES, Rule
from sembridge.state import Holding, disjoint_cover, overlaps
from sembridge.surfaces import (
    MAX_COLUMNS,
    Choice,
    ChosenTokens,
    Logprobs,
    ShardedTokens,
    Tokens,
    TopLogprobs,
)
from tests.core.build import TAG, contract, plan

TRUTH = (False, True)
SETS = tuple(frozenset(s) for s in ("", "a", "b", "ab", "abc"))


def test_guards_of_single_values():
    for a, b in product("abc", repeat=2):
        same = "".join([b])  # equal, and not the same object where it is longer
        assert g.crosses(a, same) is (a != b)
        assert g.inside(a, same) is (a == b)
        assert g.registered(a, same) is (a == b)
    assert g.registered("".join(["su", "m"]), "".join(["s", "um"])) is True


def test_guards_of_truth_values():
    for a, b in product(TRUTH, repeat=2):
        assert g.reassembled(a, b) is (a and b)
        assert g.outstanding(a) is (not a)


def test_guards_of_sets():
    for a, b in product(SETS, repeat=2):
        assert g.exactly(a, frozenset(b)) is (a == b)
        assert g.substitutable(a, b) is (a <= b)
        for owners, reduced in product(SETS, TRUTH):
            wanted = a <= owners and (reduced or b <= owners)
            assert g.issued_by_owner(a, b, owners, reduced) is wanted


def _chosen() -> list[Subject]:
    """Subjects of every obligation and surface, at home, apart, spare, in two and three domains."""
    parts = ("tp2.d2.v0", "tp2.d1.v2", "tp4.d3.v2", "tp2.home", "tp3.spare", "tp4.d3", "tp2.d1")
    named = [s for source in ("matrix", "family") for s in subjects(source).values()]
    return [s for s in named if s.contract.name.endswith(parts)] + [*subjects("edges").values()]


def test_violations_are_as_recorded(golden):
    lines: list[str] = []
    for subject in _chosen():
        for mutant in generate(Task(subject=subject, options=Options(limit=6))):
            try:
                report = check(mutant.contract, mutant.plan)
            except BadInput as error:
                lines.append(f"{mutant.id}: {error}")
                continue
            lines.append(f"{mutant.id}: {report.verdict} {' '.join(map(str, report.footprint))}")
            lines += [f"  {v.rule} {v.op} {v.endpoint}: {v.message}" for v in report.violations]
    golden("mutations/violations.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("source", SOURCES)
def test_plans_are_as_recorded(golden, source):
    lines: list[str] = []
    for edge in SOURCES[source]():
        ob = resolve(edge)
        assert not validate(ob)
        for policy in POLICIES.values():
            lowered, report = lower_valid(ob, policy)
            lines.append(f"{edge.name} {policy.name}: {' '.join(map(str, report.footprint))}")
            lines += [f"  {describe(ob, op)}" for op in lowered.ops]
    golden(f"mutations/plans-{source}.txt", "\n".join(lines) + "\n")


def _slices(*spans: tuple[int, int]) -> Holding:
    held = Holding(True, frozenset("p"), frozenset("p"), False, [])
    for span in spans:
        held.add(span, Holding(True, frozenset("p"), frozenset("p")))
    return held


def _elements(held: Holding, elements: int) -> set[int]:
    return {i for start, stop in held.pieces for i in range(start, stop)} & set(range(elements))


SPANS = [(a, b) for a in range(5) for b in range(a, 5)]
HOLDINGS = [
    (),
    ((0, 1),),
    ((1, 3),),
    ((0, 2), (2, 4)),
    ((0, 1), (3, 4)),
    ((2, 3), (0, 1)),
    ((1, 2), (2, 3), (3, 4)),
]


@pytest.mark.parametrize("spans", HOLDINGS)
def test_slices_overlap_and_cover_element_by_element(spans):
    held = _slices(*spans)
    there = _elements(held, 4)
    assert held.size == len(there)
    assert held.pieces == sorted(held.pieces)
    for span in SPANS:
        wanted = set(range(*span))
        assert held.covers(span) is (wanted <= there)
        assert overlaps(held, span) is (not wanted or bool(wanted & there))
    assert held.covers(None) is False
    assert overlaps(held, None) is True


def test_a_whole_covers_and_overlaps_everything():
    whole = Holding(True, frozenset("p"), frozenset("p"))
    assert all(whole.covers(span) and overlaps(whole, span) for span in [*SPANS, None])


def test_empty_slices_leave_no_piece():
    held = _slices((2, 2))
    assert (held.pieces, held.size) == ([], 0)


def test_disjoint_covers_element_by_element():
    for a, b in product(HOLDINGS, repeat=2):
        held = [_slices(*a), _slices(*b)]
        counts = [sum(i in _elements(h, 4) for h in held) for i in range(4)]
        assert disjoint_cover(held, 4) is (counts == [1] * 4)
    whole = Holding(True, frozenset("p"), frozenset("p"))
    assert disjoint_cover([whole], 4)
    assert not disjoint_cover([whole, _slices((0, 1))], 4)
    assert not disjoint_cover([whole, whole], 4)
    assert not disjoint_cover([], 4)
    assert disjoint_cover([_slices((2, 2))], 0)


def test_a_slice_takes_over_incompleteness_sources_and_issuers():
    held = _slices((0, 1))
    held.add((1, 2), Holding(False, frozenset("q"), frozenset("r")))
    assert (held.complete, held.sources, held.issuers) == (False, {"p", "q"}, {"p", "r"})
    held.add((2, 3), Holding(True, frozenset("s"), frozenset("t")))
    assert (held.complete, held.sources, held.issuers) == (False, set("pqs"), set("prt"))


def test_slices_that_were_broadcast_stay_at_their_root():
    """Consumers that share what a root held do not share what one of them is sent later."""
    edge = contract(tails="ttt", sources="000", shape=(6,))
    ops = (
        Send(src="p0", dst="c0", part=Part(index=0, of=2)),
        Broadcast(src="c0", dsts=("c1", "c2")),
        Send(src="p1", dst="c1", part=Part(index=1, of=2)),
        Broadcast(src="c1", dsts=("c0",)),
    )
    state = CHECKER.start(resolve(edge))
    for op in ops:
        CHECKER.step(state, op)
    held = state.held["value"]
    assert held["c1"].whole and not held["c2"].whole
    assert held["c2"].pieces == [(0, 3)]
    assert held["c2"].sources == {"p0"}
    assert held["c1"].sources == {"p0", "p1"}


def test_gathers_unite_sources_issuers_and_completeness():
    edge = contract(tails="tt", shape=(5,))
    state = CHECKER.start(resolve(edge))
    for j in range(2):
        CHECKER.step(state, Send(src=f"p{j}", dst=f"c{j}", part=Part(index=j, of=2)))
    CHECKER.step(state, AllGather(members=("c0", "c1")))
    for c in ("c0", "c1"):
        held = state.held["value"][c]
        assert held.whole and held.complete
        assert held.sources == held.issuers == {"p0", "p1"}
    assert check(edge, plan()).violations[0].rule == "coverage"


def _rules(edge, *ops, **named):
    return [(v.rule, v.op, v.endpoint) for v in check(edge, plan(*ops, **named)).violations]


BOTH = ("p0", "p1")
REPLICA = contract(classes=(BOTH,))
ONE = (Send(src="p0", dst="c0"), Broadcast(src="c0", dsts=("c1",)))


def test_equal_names_need_not_be_one_object():
    """A plan from a file shares no string with its contract."""
    tag = Tag(**msgspec.structs.asdict(TAG))
    assert _rules(REPLICA, *ONE, tag=tag, name="".join(REPLICA.name)) == []
    halves = [
        Send(src="p0", dst="c0", surface="".join("value"), part=Part(index=i, of=2))
        for i in range(2)
    ]
    assert _rules(REPLICA, *halves, ONE[1]) == []


def test_hundreds_of_lanes():
    """Counts beyond the small integers that an interpreter shares."""
    n = 300
    lanes = tuple(f"c{i}" for i in range(n))
    lane = {"tails": "t" * n, "sources": "0" * n, "shape": (n,)}
    edge = contract(n, **lane)
    slices = [Send(src=f"p{i}", dst=c, part=Part(index=i, of=n)) for i, c in enumerate(lanes)]
    assert _rules(edge, *slices, AllGather(members=lanes)) == []
    cast = (Send(src="p0", dst="c0"), Broadcast(src="c0", dsts=lanes[1:]))
    everyone = tuple(f"p{i}" for i in range(n))
    assert _rules(contract(n, classes=(everyone,), **lane), *cast) == []
    reduce = Reduce(operator="sum", sources=everyone, targets=everyone)
    summed = contract(n, reduce="sum", **lane)
    assert _rules(summed, reduce, *cast) == []
    assert _rules(summed, msgspec.structs.replace(reduce, sources=everyone[1:]), *cast)[0] == (
        "reduction",
        0,
        None,
    )


def test_ops_that_name_every_endpoint_name_no_stranger():
    home = contract(2, tails="hh", classes=(BOTH,))
    everyone = ("p0", "p1", "c0", "c1")
    assert ("membership", 0, None) not in _rules(home, Broadcast(src="p0", dsts=everyone))
    assert {r for r, *_ in _rules(home, Broadcast(src="p0", dsts=everyone))} == {"redelivery"}
    summed = contract(2, tails="hh", reduce="sum")
    reduce = Reduce(operator="sum", sources=BOTH, targets=everyone)
    assert _rules(summed, reduce) == []
    gather = AllGather(members=everyone)
    assert {r for r, *_ in _rules(home, Broadcast(src="p0", dsts=("c0", "c1")), gather)} == {
        "availability"
    }


@pytest.mark.parametrize(
    ("op", "names"),
    [
        (Send(src="x", dst="y"), ["x", "y"]),
        (Broadcast(src="x", dsts=("c0", "y")), ["x", "y"]),
        (Project(projection="argmax", at="x"), ["x"]),
        (AllGather(members=("x", "c0")), ["x"]),
        (AllGather(members=("c0", "x")), ["x"]),
        (Reduce(operator="sum", sources=("x",), targets=("y",)), ["x", "y"]),
    ],
)
def test_every_stranger_is_named(op, names):
    found = check(REPLICA, plan(op, *ONE)).violations
    assert [(v.rule, v.endpoint) for v in found] == [("membership", name) for name in names]
    assert {v.message for v in found} == {"no endpoint of the contract"}


@pytest.mark.parametrize("part", [Part(index=2, of=2), Part(index=3, of=2), Part(index=900, of=1)])
def test_a_slice_beyond_the_last_is_not_held(part):
    send = Send(src="p0", dst="c0", part=part)
    assert _rules(REPLICA, send, *ONE) == [("availability", 0, "p0")]


def test_only_the_value_has_slices_whatever_the_others_are_called():
    for projection in ("amax", "zoom"):
        surface = f"{projection}()"
        project = Project(projection=projection, at="p0")
        send = Send(src="p0", dst="c1", surface=surface, part=Part(index=0, of=2))
        assert _rules(REPLICA, project, send, *ONE) == [
            ("projection", 0, "p0"),
            ("availability", 1, "p0"),
        ]


def test_one_slice_of_one_is_the_whole_and_comes_on_top_of_nothing():
    edge = contract(1, tails="t", shape=(2,))
    whole = Send(src="p0", dst="c0", part=Part(index=0, of=1))
    empty = Send(src="p0", dst="c0", part=Part(index=2, of=3))
    assert _rules(edge, whole) == []
    assert _rules(edge, empty, whole) == [("redelivery", 1, "c0")]
    assert (
        check(edge, plan(whole)).footprint == check(edge, plan(Send(src="p0", dst="c0"))).footprint
    )


def test_messages_name_the_first_four_endpoints():
    edge = contract(5, tails="t" * 5, shape=(5,), classes=(("p1", "p2"),), owner=("p1",))
    slices = [Send(src=f"p{i}", dst="c0", part=Part(index=i, of=5)) for i in range(5)]
    messages = [v.message for v in check(edge, plan(*slices)).violations if v.endpoint == "c0"]
    assert messages == ["value issued by {p0, p1, p2, p3, ...}, not by {p1}"]
    four = [Send(src=f"p{i}", dst="c0", part=Part(index=i, of=4)) for i in range(4)]
    messages = [v.message for v in check(edge, plan(*four)).violations if v.endpoint == "c0"]
    assert messages == ["value issued by {p0, p1, p2, p3}, not by {p1}"]


def test_reports_and_rules_are_values():
    report = check(REPLICA, plan(*ONE))
    with pytest.raises(AttributeError):
        report.verdict = None
    with pytest.raises(TypeError):
        Report(report.verdict, report.footprint, report.violations)
    for rule in RULES:
        assert isinstance(rule.id, str)
        assert rule.id.startswith(f"{rule.name}/")
        with pytest.raises(AttributeError):
            rule.name = ""
    with pytest.raises(TypeError):
        Rule("name", "on", "says")


def test_indices_beyond_the_small_integers():
    held = _slices(*((i, i + 1) for i in range(300, 700)))
    assert held.covers((300, 700))
    assert not held.covers((300, 701))
    assert not held.covers((299, 302))
    assert overlaps(held, (int("800"), int("800")))
    assert not overlaps(held, (700, 701))
    assert not disjoint_cover([held], 700)
    edge = contract(1, tails="t", shape=(600,))
    slices = [Send(src="p0", dst="c0", part=Part(index=i, of=3)) for i in range(3)]
    assert _rules(edge, *slices) == []
    assert _rules(edge, *slices[:2]) == [("coverage", None, "c0")]
    assert _rules(edge, *slices, slices[0]) == [("redelivery", 3, "c0")]
    halves = [Send(src="p0", dst="c0", part=Part(index=i, of=2)) for i in range(2)]
    assert _rules(edge, *slices[:2], halves[1]) == [
        ("redelivery", 2, "c0"),
        ("coverage", None, "c0"),
    ]


def test_a_broadcast_of_nothing_repeats_whatever_is_held():
    edge = contract(1, tails="tt", sources="00", shape=(6,))
    empty = Send(src="p0", dst="c0", part=Part(index=6, of=7))
    cast = Broadcast(src="c0", dsts=("c1",))
    for i in range(2):
        half = Send(src="p0", dst="c1", part=Part(index=i, of=2))
        assert ("redelivery", 2, "c1") in _rules(edge, empty, half, cast)
    assert not [rule for rule, *_ in _rules(edge, empty, cast) if rule == "redelivery"]


def test_a_forked_state_goes_on_by_itself():
    edge = contract(tails="tt", surface=Logprobs(), shape=(3, 2))
    start = CHECKER.start(resolve(edge))
    half = [Send(src=f"p{i}", dst=f"c{i}", part=Part(index=i, of=2)) for i in range(2)]
    CHECKER.step(start, half[0])
    CHECKER.step(start, Project(projection="argmax", at="p0"))
    kept = {x: (h.whole, [*h.pieces]) for x, h in start.held["value"].items()}
    fork = start.fork()
    for state in (fork, start.fork()):
        for op in (Send(src="p1", dst="c0", part=Part(index=1, of=2)), half[1]):
            CHECKER.step(state, op)
        CHECKER.step(state, Project(projection="argmax", at="c0"))
        assert state.found == []
        assert state.held["value"]["c0"].whole
        assert set(state.held["tokens"]) == {"p0", "c0"}
    assert {x: (h.whole, [*h.pieces]) for x, h in start.held["value"].items()} == kept
    assert set(start.held["tokens"]) == {"p0"}
    assert start.held["value"] is start.values
    assert fork.held["value"] is fork.values
    assert fork.held["value"]["p0"] is start.held["value"]["p0"]
    CHECKER.step(fork, Send(src="p1", dst="c1"))
    assert "c1" not in start.held["value"]
    weak = Checker([r for r in RULES if r.name != "coverage"])
    assert weak.start(resolve(edge)).fork().rules == frozenset(
        r.id for r in RULES if r.name != "coverage"
    )


def test_empty_pieces_at_large_indices_leave_no_piece():
    assert _slices((int("500"), int("500"))).pieces == []


def _rejected(edge):
    return [(v.rule, v.message) for v in validate(resolve(edge))]


def test_a_value_has_no_more_than_the_most_elements():
    assert resolve(contract(shape=(2**48, 2**14))).elements == 2**62
    with pytest.raises(BadInput, match=f"more than 2\\*\\*62 elements: {2**62 + 2**48}"):
        resolve(contract(shape=(2**48, 2**14 + 1)))


@pytest.mark.parametrize(
    ("shape", "says"),
    [((2, 6), "9 columns of a last axis of (6,)"), ((), "9 columns of a last axis of ()")],
)
def test_more_valid_columns_than_there_are(shape, says):
    with pytest.raises(BadInput, match=re.escape(says)) as raised:
        resolve(contract(shape=shape, valid_last=9))
    assert raised.value.path == "$.value.valid_last"


@pytest.mark.parametrize(
    ("dim", "last"), [(0, False), (1, False), (2, True), (-1, True), (-3, False)]
)
def test_the_projected_axis_is_the_last_of_three(dim, last):
    edge = contract(placement=Shard(dim=dim), shape=(2, 3, 4), surface=Tokens())
    along = "argmax along the sharded axis: only a sharded projection combines shards"
    assert _rejected(edge) == ([("contract.projection", along)] if last else [])


def test_the_largest_index_is_named():
    for columns in (18, 19):
        edge = contract(shape=(2, columns), surface=Tokens(output_dtype="float8_e4m3fn"))
        says = f"float8_e4m3fn cannot hold index {columns - 1}"
        assert _rejected(edge) == [("contract.projection", says)]
    assert _rejected(contract(shape=(2, 17), surface=Tokens(output_dtype="float8_e4m3fn"))) == []


@pytest.mark.parametrize(("dim", "known"), [(-4, 0), (-3, 1), (2, 1), (3, 0), (4, 0)])
def test_a_shards_axis_is_one_of_the_values(dim, known):
    edge = contract(placement=Shard(dim=dim), shape=(2, 3, 4))
    if known:
        assert _rejected(edge) == []
        return
    with pytest.raises(BadInput, match=f"{dim} is no axis of a value of rank 3") as raised:
        resolve(edge)
    assert raised.value.path == "$.placement.dim"


def test_all_columns_may_be_valid_and_no_more():
    assert _rejected(contract(shape=(2, 6), valid_last=6)) == []
    assert _rejected(contract(shape=(int("1000"),), valid_last=int("1000"))) == []
    with pytest.raises(BadInput, match=re.escape("9 columns of a last axis of (4,)")):
        resolve(contract(shape=(2, 9, 4), valid_last=9))


@pytest.mark.parametrize("classes", [(("p0", "p0"),), (("p0", "p1"), ("p1",))])
def test_a_producer_is_in_one_class_once(classes):
    with pytest.raises(BadInput, match="a producer is in two classes, or twice in one"):
        resolve(contract(classes=classes))


@pytest.mark.parametrize(("says", "placed"), [("sum", "maximum"), ("maximum", "sum")])
def test_reduction_and_placement_name_one_operator(says, placed):
    edge = contract(reduce=says, placement=Partial(op=placed))
    wanted = f"operator {says!r} is not the placement's {placed!r}"
    assert _rejected(edge) == [("contract.reduction", wanted)]
    assert (
        _rejected(contract(reduce="".join(says), placement=Partial(op="".join(list(says))))) == []
    )


def test_some_owners_of_a_class_are_joined_by_it():
    trio = ("p0", "p1", "p2")
    assert _rejected(contract(3, classes=(trio,), owner=("p0", "p2"))) == []
    assert len(_rejected(contract(3, classes=(trio[:2],), owner=("p0", "p2")))) == 1


def test_a_contract_of_nobody_lacks_demand_and_nothing_else():
    nobody = msgspec.structs.replace(contract(reduce="sum"), producers=(), consumers=())
    fact = nobody.facts.reduction
    nothing = msgspec.structs.replace(fact.value, sources=())
    facts = msgspec.structs.replace(
        nobody.facts, reduction=msgspec.structs.replace(fact, value=nothing)
    )
    found = _rejected(msgspec.structs.replace(nobody, facts=facts))
    assert found == [("contract.demand", "no consumer is demanded")]


def test_a_consumer_of_some_other_surface_holds_something():
    for projection in ("amax", "zoom"):
        surface = f"{projection}()"
        ops = (Project(projection=projection, at="p0"), Send(src="p0", dst="c0", surface=surface))
        edge = contract(1, tails="t")
        assert ("surface", None, "c0") in _rules(edge, *ops)
        assert ("coverage", None, "c0") not in _rules(edge, *ops)


def test_one_producer_serves_two_domains_one_by_one():
    edge = contract(2, tails="tu", sources="00")
    assert lower(edge).ops == (Send(src="p0", dst="c0"), Send(src="p0", dst="c1"))
    near = contract(2, tails="ht", sources="00")
    assert lower(near).ops == (Broadcast(src="p0", dsts=("c0",)), Send(src="p0", dst="c1"))


def test_a_domain_abroad_is_served_by_the_first_source_at_work():
    edge = contract(3, tails="xht", classes=(("p0", "p1", "p2"),))
    apart = [msgspec.structs.replace(p, domain="x") for p in edge.producers[1:2]]
    edge = msgspec.structs.replace(
        edge,
        producers=(edge.producers[0], *apart, edge.producers[2]),
    )
    assert lower(edge).ops == (
        Broadcast(src="p1", dsts=("c0",)),
        Broadcast(src="p0", dsts=("c1",)),
        Send(src="p1", dst="c2"),
    )


def test_as_many_columns_as_sums_stay_exact_over():
    def over(columns):
        return contract(shape=(1, columns), surface=TopLogprobs(k=1))

    assert _rejected(over(MAX_COLUMNS)) == []
    says = f"top_logprobs over more than {MAX_COLUMNS} columns"
    assert _rejected(over(MAX_COLUMNS + 1)) == [("contract.projection", says)]


@pytest.mark.parametrize(("shape", "rows"), [((2, 6), 2), ((2, 3, 6), 6), ((300, 6), 300)])
def test_a_choice_for_each_row_and_no_more(shape, rows):
    for given in (rows - 1, rows, rows + 1):
        edge = contract(shape=shape, surface=ChosenTokens(choices=(Choice(),) * given))
        says = f"{given} choices for {rows} rows"
        assert _rejected(edge) == ([("contract.projection", says)] if given != rows else [])


def test_shards_of_the_last_of_three_axes_make_up_the_vocabulary():
    def shards(vocabulary):
        surface = ShardedTokens(vocabulary=vocabulary)
        return contract(placement=Shard(dim=2), shape=(2, 3, 6), surface=surface)

    assert _rejected(shards(12)) == []
    says = "a vocabulary of 13 in 2 shards of 6"
    assert _rejected(shards(13)) == [("contract.projection", says)]


@pytest.mark.parametrize("rank", [1, 2, 300])
def test_the_last_axis_is_found_at_every_rank(rank):
    surface = ShardedTokens(vocabulary=12)
    shape = (*[1] * (rank - 1), 6)
    assert _rejected(contract(placement=Shard(dim=rank - 1), shape=shape, surface=surface)) == []
    assert _rejected(contract(placement=Shard(dim=-1), shape=shape, surface=surface)) == []


def test_shards_of_nobody_span_no_domains():
    edge = contract(placement=Shard(dim=1), surface=ShardedTokens(vocabulary=12))
    nobody = msgspec.structs.replace(edge, producers=(), consumers=())
    assert _rejected(nobody) == [
        ("contract.demand", "no consumer is demanded"),
        ("contract.projection", "a vocabulary of 12 in 0 shards of 6"),
    ]


def test_parameters_that_have_to_cross_first_can_make_assembling_cheaper():
    """Two tokens for each domain are 32 bytes and their parameters 80; the value is 96."""

    def gathers(given):
        surface = ChosenTokens(choices=(Choice(), Choice()), given=given)
        edge = contract(tails="ttuu", sources="0101", shape=(2, 12), surface=surface)
        return [op for op in lower(edge).ops if isinstance(op, AllGather)]

    assert gathers("consumers") == [AllGather(members=("c0", "c1"))]
    assert gathers("everywhere") == []
