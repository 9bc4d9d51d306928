"""Contract-guided lowering (Algorithm 1): ordered passes, each a pure function of obligations.

Read ``lower`` beside the paper's algorithm; each pass names its lines. Order is stable, nothing
depends on payload contents, and no branch looks at the name of a model or a configuration.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from msgspec import Struct

from sembridge.check import CHECKER, Report
from sembridge.contract import (
    NO_EVIDENCE,
    NO_GRAPH,
    NO_RUNTIME,
    BoundaryEdge,
    Contract,
    Evidence,
    GraphFacts,
    RuntimeFacts,
    build_contract,
)
from sembridge.errors import PlanRejected
from sembridge.layout import stable_order
from sembridge.obligations import Obligations, resolve_valid
from sembridge.plan import VALUE, AllGather, AnyOp, Broadcast, Part, Plan, Project, Reduce, Send
from sembridge.surfaces import PARAMETERS
from sembridge.verdict import Verdict


class Policy(Struct, frozen=True, kw_only=True):
    """Which capabilities the lowerer may use (§4.2); each is a refinement of the reference."""

    name: str
    prune_demand: bool = True
    multicast: bool = True
    substitute: bool = True
    project_at_producer: bool = True
    materialize: str = "where-cheaper"
    """``never``, ``always`` (R0, L0), or ``where-cheaper``: slices of a replicate placement."""


SEMANTIC = Policy(name="semantic")
REFERENCE = Policy(
    name="reference",
    multicast=False,
    substitute=False,
    project_at_producer=False,
    materialize="always",
)
_COPIES = Policy(
    name="mapped-copies",
    prune_demand=False,
    multicast=False,
    substitute=False,
    materialize="never",
)
LADDER: tuple[Policy, ...] = (
    _COPIES,
    Policy(name="+demand", multicast=False, substitute=False, materialize="never"),
    Policy(name="+multicast", substitute=False, materialize="never"),
    Policy(name="+substitution", materialize="never"),
)
"""The capability ladder of §4.2: demand pruning, domain-local multicast, replica substitution."""

POLICIES: dict[str, Policy] = {p.name: p for p in (SEMANTIC, REFERENCE, *LADDER)}


class Delivery(NamedTuple):
    """One source serving consumers of one domain; ``local`` where that is its own domain."""

    src: str
    consumers: list[str]
    local: bool


def complete(ob: Obligations) -> list[AnyOp]:
    """Lines 4-6: finish the registered reduction at every producer.

    What a projection of shards leaves to be combined is projected first, at each of them.
    """
    if ob.reduced is None or ob.operator is None:
        return []
    producers = tuple(ob.producers)
    if ob.completes == VALUE or ob.projected is None:
        return [Reduce(operator=ob.operator, sources=producers, targets=producers)]
    name = ob.projected.name
    combine = Reduce(
        operator=ob.operator, sources=producers, targets=producers, surface=ob.completes
    )
    return [*[Project(projection=name, at=p) for p in producers], combine]


def carried_surface(ob: Obligations, policy: Policy) -> str:
    """Lines 7-14: what crosses the boundary, the projected result or the value.

    A token-only surface is projected at the producer wherever that does not enlarge the payload
    (it would only where a row of the value is smaller than the output's record). Parameters that
    have to cross first count with it. Of shards only the combined result can cross.
    """
    projected = ob.projected
    if projected is None or ob.surface.keeps_value:
        return VALUE
    if ob.completes != VALUE:
        return ob.completes
    payload = ob.sizes[projected.output]
    if ob.informs:
        payload += ob.sizes[PARAMETERS]
    return projected.output if policy.project_at_producer and payload <= ob.value_bytes else VALUE


def select_sources(ob: Obligations, policy: Policy, consumers: list[str]) -> list[Delivery]:
    """Lines 15-21: the owner; else one representative per class and domain; else μ.

    A source inside a consumer's own domain serves it without crossing; the others are served by
    a source that serves at home already, so that it need not project anew.
    """
    if ob.owners is not None:
        return _by_domain(ob, stable_order([*ob.owners]), consumers)
    if ob.reduced is not None and policy.substitute:
        return _by_domain(ob, ob.producers, consumers)
    class_of = ob.class_of if policy.substitute else {}
    pools: defaultdict[str | frozenset[str], list[str]] = defaultdict(list)
    for c in consumers:
        source = ob.mapped[c]
        pools[class_of.get(source, source)].append(c)
    deliveries: list[Delivery] = []
    for key, served in pools.items():
        if isinstance(key, str):
            if len(served) == 1:
                local = ob.domain_of[key] == ob.domain_of[served[0]]
                deliveries.append(Delivery(key, served, local))
                continue
            pool = [key]
        else:
            pool = ob.producers if len(key) == len(ob.producers) else stable_order([*key])
        deliveries += _by_domain(ob, pool, served)
    return deliveries


def _by_domain(ob: Obligations, pool: list[str], consumers: list[str]) -> list[Delivery]:
    """Serve each domain from the first source of ``pool`` at home there, else from one of them."""
    domain_of = ob.domain_of
    home = {domain_of[p]: p for p in reversed(pool)}
    domains: defaultdict[str, list[str]] = defaultdict(list)
    for c in consumers:
        domains[domain_of[c]].append(c)
    at_work = [home[domain] for domain in domains if domain in home]
    abroad = at_work[0] if at_work else pool[0]
    return [
        Delivery(home.get(domain, abroad), served, domain in home)
        for domain, served in domains.items()
    ]


def project_at_producers(ob: Obligations, carried: str, deliveries: list[Delivery]) -> list[AnyOp]:
    """Line 8, once the sources are known, so that only they project; parameters go there first."""
    if carried == VALUE or ob.projected is None or ob.completes != VALUE:
        return []
    name, sources = ob.projected.name, dict.fromkeys(d.src for d in deliveries)
    ops: list[AnyOp] = [Project(projection=name, at=src) for src in sources]
    if ob.informs:
        return inform(ob, list(sources)) + ops
    return ops


def crossing_parameters(
    ob: Obligations, carried: str, deliveries: list[Delivery]
) -> tuple[int, int]:
    """Bytes and startups that take parameters to the domains of sources that project."""
    if carried == VALUE or not ob.informs:
        return 0, 0
    away = {ob.domain_of[d.src] for d in deliveries} - {ob.domain_of[c] for c in ob.demanded}
    return len(away) * ob.sizes[PARAMETERS], len(away)


def inform(ob: Obligations, sources: list[str]) -> list[AnyOp]:
    """Deliver the projection's parameters by domain, from a consumer at home there or abroad."""
    return deliver_by_domain(SEMANTIC, PARAMETERS, _by_domain(ob, ob.demanded, sources))


def deliver_by_domain(policy: Policy, carried: str, deliveries: list[Delivery]) -> list[AnyOp]:
    """Line 22: one send per source and remote domain, native broadcast inside."""
    ops: list[AnyOp] = []
    for src, receivers, local in deliveries:
        if not policy.multicast:
            for c in receivers:
                if local:
                    ops.append(Broadcast(src=src, dsts=(c,), surface=carried))
                else:
                    ops.append(Send(src=src, dst=c, surface=carried))
        elif local:
            ops.append(Broadcast(src=src, dsts=tuple(receivers), surface=carried))
        else:
            first = receivers[0]
            ops.append(Send(src=src, dst=first, surface=carried))
            if len(receivers) > 1:
                ops.append(Broadcast(src=first, dsts=tuple(receivers[1:]), surface=carried))
    return ops


def project_at_consumers(ob: Obligations, carried: str, consumers: list[str]) -> list[AnyOp]:
    """Lines 11 and 23: the consumer-side projection, where the value is what crossed."""
    if ob.projected is None or carried != VALUE:
        return []
    return [Project(projection=ob.projected.name, at=c) for c in consumers]


def _sliced(ob: Obligations, members: list[str]) -> list[AnyOp]:
    """MaterializeComplete for one remote domain: slice j from the mapped producer of lane j."""
    of = len(members)
    ops: list[AnyOp] = [
        Send(src=ob.mapped[c], dst=c, part=Part(index=j, of=of)) for j, c in enumerate(members)
    ]
    return [*ops, AllGather(members=tuple(members))]


def _remote_lanes(ob: Obligations, consumers: list[str]) -> dict[str, list[str]]:
    """Consumers by domain, those whose mapped producer is in another one."""
    domain_of, lanes = ob.domain_of, dict[str, list[str]]()
    for c in consumers:
        if domain_of[ob.mapped[c]] != domain_of[c]:
            lanes.setdefault(domain_of[c], []).append(c)
    return lanes


def materialize_layout(ob: Obligations, policy: Policy, consumers: list[str]) -> list[AnyOp]:
    """Lines 10 and 13 as the layout directs: each remote domain by itself (R0, L0)."""
    lanes = _remote_lanes(ob, consumers)
    sliced = [members for members in lanes.values() if len(members) > 1]
    served = {c for members in sliced for c in members}
    ops = [op for members in sliced for op in _sliced(ob, members)]
    others = select_sources(ob, policy, [c for c in consumers if c not in served])
    ops += deliver_by_domain(policy, VALUE, others)
    return ops + project_at_consumers(ob, VALUE, consumers)


def materialize_once(
    ob: Obligations,
    policy: Policy,
    carried: str,
    consumers: list[str],
    mapped: list[Delivery],
) -> list[AnyOp] | None:
    """Assemble the slices in one remote domain, and relay from there to the others.

    An assembled whole is admissible anywhere under a replicate placement, so one assembly
    serves every domain that needs anything from outside, with one startup each, and then every
    consumer there with one broadcast. None where that moves no fewer bytes, or as many in no
    fewer startups, than the ``mapped`` deliveries; those never cost more locally.
    """
    lanes = _remote_lanes(ob, consumers)
    mixed = [d for d, members in lanes.items() if len({ob.mapped[c] for c in members}) > 1]
    if not mixed:
        return None
    by_domain: defaultdict[str, list[str]] = defaultdict(list)
    for c in consumers:
        by_domain[ob.domain_of[c]].append(c)
    # The fewest lanes; among equals, a domain without other consumers to serve beside them.
    here = min(mixed, key=lambda d: (len(lanes[d]), len(by_domain[d]) > len(lanes[d])))
    assembling, assembled = lanes[here], set(lanes[here])
    size, copies = ob.sizes[carried], sum(not d.local for d in mapped)
    once = (ob.value_bytes + size * (len(lanes) - 1), len(assembling) + len(lanes) - 1)
    bytes_in, sends_in = crossing_parameters(ob, carried, mapped)
    if once >= (size * copies + bytes_in, copies + sends_in):
        return None
    beside = [c for c in by_domain[here] if c not in assembled]
    onward = [Delivery(assembling[0], beside, True)] if beside else []
    onward += [Delivery(assembling[0], by_domain[d], False) for d in lanes if d != here]
    local = select_sources(ob, policy, [c for c in consumers if ob.domain_of[c] not in lanes])
    return [
        *project_at_producers(ob, carried, local),
        *deliver_by_domain(policy, carried, local),
        *_sliced(ob, assembling),
        *project_at_consumers(ob, VALUE, assembling),
        *deliver_by_domain(policy, carried, onward),
        *project_at_consumers(ob, carried, [c for c in consumers if c not in assembled]),
    ]


def passes(ob: Obligations, policy: Policy) -> list[AnyOp]:
    """Algorithm 1, lines 3 to 23: the passes in order."""
    consumers = ob.demanded if policy.prune_demand else ob.consumers
    ops, carried = complete(ob), carried_surface(ob, policy)
    deliveries = select_sources(ob, policy, consumers)
    rest = None
    if ob.owners is None and policy.materialize != "never":
        if policy.materialize == "always":
            if ob.replicate or (ob.reduced is not None and ob.completes == VALUE):
                rest = materialize_layout(ob, policy, consumers)
        elif ob.replicate and not ob.class_of:
            rest = materialize_once(ob, policy, carried, consumers, deliveries)
    if rest is None:
        rest = [
            *project_at_producers(ob, carried, deliveries),
            *deliver_by_domain(policy, carried, deliveries),
            *project_at_consumers(ob, carried, consumers),
        ]
    return ops + rest


def lower_valid(ob: Obligations, policy: Policy = SEMANTIC) -> tuple[Plan, Report]:
    """Lower obligations that passed validation; the plan returned is one the checker accepted.

    Raises:
        PlanRejected: the checker refused the plan, which is a defect of this module.
    """
    ops = passes(ob, policy)
    contract = ob.contract
    plan = Plan(contract=contract.name, tag=contract.tag, ops=tuple(ops))
    report = CHECKER.check_valid(ob, plan)
    if report.verdict is not Verdict.LEGAL:
        raise PlanRejected(contract.name, report.violations)
    return plan, report


def lower(contract: Contract, policy: Policy = SEMANTIC) -> Plan:
    """Algorithm 1: a checked plan for the contract, deterministic and in stable order.

    Time O((|P| + |C|) log(|P| + |C|)) (§4.4).

    Raises:
        BadInput: the contract refers to what is not there.
        ContractRejected: it fails static validation.
    """
    return lower_valid(resolve_valid(contract), policy)[0]


class Compiled(NamedTuple):
    """An edge's contract, its accepted plan, and the checker's report."""

    contract: Contract
    plan: Plan
    report: Report


def compile_edge(
    edge: BoundaryEdge,
    graph: GraphFacts = NO_GRAPH,
    runtime: RuntimeFacts = NO_RUNTIME,
    evidence: Evidence = NO_EVIDENCE,
    *,
    policy: Policy = SEMANTIC,
) -> Compiled:
    """Facts to contract to checked plan: the whole of Algorithm 1 for one boundary edge.

    Raises:
        BadInput, ContractRejected: as :func:`lower`.
    """
    contract = build_contract(edge, graph, runtime, evidence)
    return Compiled(contract, *lower_valid(resolve_valid(contract), policy))
