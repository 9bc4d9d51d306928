"""A plan as text and as a picture: domains as boxes, ops numbered, sizes on the arrows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from sembridge.check import check
from sembridge.contract import Contract
from sembridge.errors import BadInput
from sembridge.footprint import part_bytes
from sembridge.obligations import Obligations, resolve
from sembridge.plan import (
    AllGather,
    AnyOp,
    Broadcast,
    Plan,
    Project,
    Reduce,
    Send,
    endpoints_of,
)

WIDE = 8.2
"""Inches from which a picture has room for letters of ten points."""

MAX_DRAWN = 64
"""Most endpoints, and most ops, that a picture takes."""


def size_of(count: int) -> str:
    """Bytes in the largest decimal unit that leaves a number of at least one.

    >>> size_of(3201024), size_of(16)
    ('3.201 MB', '16 B')
    """
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} B"


def describe(ob: Obligations, op: AnyOp) -> str:
    """One op in a line: what moves, from where to where, and how much."""
    domain_of = ob.domain_of

    def at(x: str) -> str:
        return f"{x}@{domain_of.get(x, '?')}"

    match op:
        case Reduce():
            return f"reduce {op.operator} {_few(op.sources)} ⇒ {_few(op.targets)}"
        case Project():
            return f"project {op.projection} at {at(op.at)}"
        case Send():
            part = f" part {op.part.index + 1}/{op.part.of}" if op.part else ""
            size = size_of(part_bytes(ob, op.surface, op.part))
            return f"send {at(op.src)} ──{op.surface}{part}, {size}──▶ {at(op.dst)}"
        case Broadcast():
            size = size_of(ob.sizes.get(op.surface, 0))
            return f"broadcast {at(op.src)} ══{op.surface}, {size} each══▶ {_few(op.dsts)}"
        case AllGather():
            return f"all_gather {op.surface} among {_few(op.members)}"


def _few(ids: tuple[str, ...], most: int = 8) -> str:
    shown = ", ".join(ids[:most])
    return f"{shown}, … ({len(ids)})" if len(ids) > most else shown


def draw_text(contract: Contract, plan: Plan) -> str:
    """The plan for a terminal: domains with their endpoints, ops in order, what the checker says.

    Raises:
        BadInput: the contract refers to what is not there.
    """
    return "\n".join(_lines(contract, plan)) + "\n"


def _lines(contract: Contract, plan: Plan) -> Iterator[str]:
    ob, report = resolve(contract), check(contract, plan)
    value = contract.value
    yield f"{contract.name}: {value.kind} {list(value.shape)} {value.dtype}, {_placement(contract)}"
    yield f"observed: {', '.join(ob.observed)}; facts: {_facts(contract)}"
    for name, domain in contract.domains.items():
        members = [p for p in ob.producers if ob.domain_of[p] == name]
        members += [
            f"{c}←{ob.mapped[c]}" if c in ob.demanded else f"({c})"
            for c in ob.consumers
            if ob.domain_of[c] == name
        ]
        yield f"┌ {name} [{domain.stack}]  {_few(tuple(members), 16)}"
    width = len(str(len(plan.ops)))
    for i, op in enumerate(plan.ops):
        yield f"{i + 1:>{width}}. {describe(ob, op)}"
    f = report.footprint
    yield (
        f"{report.verdict}: cross {size_of(f.cross_bytes)} in {f.cross_startups}, "
        f"local {size_of(f.local_bytes)} in {f.local_startups}, {f.ops} ops"
    )
    for v in report.violations:
        op = "" if v.op is None else f" op {v.op + 1}"
        yield f"  ✗ {v.rule}{op}{' ' + v.endpoint if v.endpoint else ''}: {v.message}"


def _placement(contract: Contract) -> str:
    placement = contract.placement
    fields = {f: getattr(placement, f) for f in placement.__struct_fields__}
    inner = ", ".join(f"{k}={v}" for k, v in fields.items())
    return type(placement).__name__.lower() + (f"({inner})" if inner else "")


def _facts(contract: Contract) -> str:
    facts = contract.facts
    named = {f: getattr(facts, f) for f in facts.__struct_fields__}
    listed = [f"{name} ({fact.origin})" for name, fact in named.items() if fact is not None]
    return ", ".join(listed) or "none"


def draw_svg(contract: Contract, plan: Plan) -> bytes:
    """The plan as an SVG picture, the same bytes for the same input.

    Raises:
        BadInput: more than ``MAX_DRAWN`` endpoints or ops, or a broken reference.
    """
    figure = draw_figure(contract, plan)
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "sembridge", "svg.fonttype": "none"}):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "sembridge"})
    return buffer.getvalue()


def draw_figure(contract: Contract, plan: Plan, *, width: float = WIDE) -> Any:
    """The plan as a matplotlib figure, ``width`` inches wide (a column of a paper has 3.33).

    Raises:
        BadInput: more than ``MAX_DRAWN`` endpoints or ops, or a broken reference.
    """
    ob, report = resolve(contract), check(contract, plan)
    endpoints = [*ob.producers, *ob.consumers]
    if len(endpoints) > MAX_DRAWN or len(plan.ops) > MAX_DRAWN:
        raise BadInput(f"too large to draw: more than {MAX_DRAWN} endpoints or ops")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    rows = max(len(_column(ob, True)), len(_column(ob, False)), 2)
    scale = 1.0 if width >= WIDE else 0.65
    figure = Figure(figsize=(width, scale * (1.3 + 0.62 * rows)))
    axes: Any = figure.add_axes((0, 0, 1, 1))
    picture = _Picture(ob, axes, rows, scale)
    picture.draw(plan)
    f = report.footprint
    axes.text(
        0.45 * scale,
        rows + 0.62,
        f"{contract.name} · {contract.value.kind} {list(contract.value.shape)} "
        f"{contract.value.dtype} · {_placement(contract)}",
        fontsize=10 * scale,
        weight="bold",
    )
    axes.text(
        0.45 * scale,
        -0.55,
        f"{report.verdict} · cross {size_of(f.cross_bytes)} in {f.cross_startups} · "
        f"local {size_of(f.local_bytes)} in {f.local_startups} · "
        f"{f.reductions} reductions · {f.ops} ops",
        fontsize=9 * scale,
    )
    return figure


def _column(ob: Obligations, producing: bool) -> list[str]:
    """Endpoints of one side, grouped by domain."""
    ids = ob.producers if producing else ob.consumers
    domains = list(ob.contract.domains)
    return sorted(ids, key=lambda x: (domains.index(ob.domain_of[x]), ids.index(x)))


class _Picture:
    """Places endpoints (producers left, consumers right) and draws ops between them."""

    WIDTH = 10.0

    def __init__(self, ob: Obligations, axes: Any, rows: int, scale: float) -> None:
        self.ob, self.axes, self.scale = ob, axes, scale
        left, self.half = (2.2, 1.75) if scale == 1 else (1.9, 1.75)
        axes.set_xlim(0, self.WIDTH)
        axes.set_ylim(-0.8, rows + 0.9)
        axes.axis("off")
        self.at: dict[str, tuple[float, float]] = {}
        for x, producing in ((left, True), (self.WIDTH - left, False)):
            ids = _column(ob, producing)
            for i, name in enumerate(ids):
                self.at[name] = (x, rows - 0.5 - i * rows / max(len(ids), 1))
            self._boxes(ids, x)

    def _boxes(self, ids: list[str], x: float) -> None:
        from matplotlib.patches import FancyBboxPatch

        for domain in dict.fromkeys(self.ob.domain_of[name] for name in ids):
            ys = [self.at[name][1] for name in ids if self.ob.domain_of[name] == domain]
            low, high = min(ys) - 0.32, max(ys) + 0.4
            self.axes.add_patch(
                FancyBboxPatch(
                    (x - self.half, low),
                    2 * self.half,
                    high - low,
                    boxstyle="round,pad=0.02,rounding_size=0.12",
                    fill=False,
                    edgecolor="0.55",
                )
            )
            stack = self.ob.contract.domains[domain].stack
            edge = self.half - 0.05
            outside = x - edge if x < 5 else x + edge
            self.axes.text(
                outside,
                high - 0.06,
                f"{domain} [{stack}]",
                fontsize=8 * self.scale,
                color="0.35",
                va="top",
                ha="left" if x < 5 else "right",
            )
        demanded = set(self.ob.demanded)
        for name in ids:
            idle = name in self.ob.mapped and name not in demanded
            self.axes.text(
                *self.at[name],
                name,
                fontsize=10 * self.scale,
                ha="center",
                va="center",
                color="0.6" if idle else "black",
                bbox={
                    "boxstyle": "round,pad=0.3",
                    "facecolor": "white",
                    "edgecolor": "0.6" if idle else "black",
                    "linestyle": ":" if idle else "-",
                },
            )

    def draw(self, plan: Plan) -> None:
        """Draw every op whose endpoints exist."""
        beside: dict[str, int] = {}
        for number, op in enumerate(plan.ops, 1):
            if all(x in self.at for x in endpoints_of(op)):
                self._op(number, op, beside)

    def _op(self, number: int, op: AnyOp, beside: dict[str, int]) -> None:
        match op:
            case Send():
                part = f" {op.part.index + 1}/{op.part.of}" if op.part else ""
                size = size_of(part_bytes(self.ob, op.surface, op.part))
                self._arrow(op.src, op.dst, f"{number}  {op.surface}{part} · {size}", "-")
            case Broadcast():
                size = size_of(self.ob.sizes.get(op.surface, 0))
                for i, dst in enumerate(op.dsts):
                    self._arrow(
                        op.src, dst, f"{number}  broadcast\n{size} each" if i == 0 else "", "--"
                    )
            case Project():
                self._note(op.at, f"{number} {op.projection}", beside)
            case AllGather():
                for x in op.members:
                    self._note(x, f"{number} all_gather", beside)
            case Reduce():
                for x in dict.fromkeys(op.sources + op.targets):
                    self._note(x, f"{number} reduce {op.operator}", beside)

    def _note(self, at: str, text: str, beside: dict[str, int]) -> None:
        x, y = self.at[at]
        step = beside[at] = beside.get(at, -1) + 1
        left = x < 5
        self.axes.text(
            x + (-0.42 if left else 0.42),
            y - 0.16 * step,
            text,
            fontsize=7.5 * self.scale,
            ha="right" if left else "left",
            va="center",
            style="italic",
        )

    def _arrow(self, src: str, dst: str, label: str, style: str) -> None:
        (x0, y0), (x1, y1) = self.at[src], self.at[dst]
        same_side = x0 == x1
        bend = 0.0
        if same_side:
            bend = 0.35 if (x0 < 5) == (y0 > y1) else -0.35
        self.axes.annotate(
            "",
            xy=(x1, y1),
            xytext=(x0, y0),
            arrowprops={
                "arrowstyle": "-|>",
                "linestyle": style,
                "color": "0.15",
                "shrinkA": 13 * self.scale,
                "shrinkB": 13 * self.scale,
                "mutation_scale": 10 * self.scale,
                "connectionstyle": f"arc3,rad={bend}",
            },
        )
        if label:
            if same_side:
                x, y = x0 + (-1.05 if x0 < 5 else 1.05), (y0 + y1) / 2
            else:
                x, y = x0 + 0.5 * (x1 - x0), y0 + 0.5 * (y1 - y0)
            self.axes.text(
                x,
                y,
                label,
                fontsize=7.5 * self.scale,
                ha="center",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            )
