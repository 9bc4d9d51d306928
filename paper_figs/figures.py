"""The paper's figures in its form, ours beside what it reports, from the results in a folder.

Each figure is SVG, PDF and PNG at column width, the same bytes for the same results: legible in
grey (lightness and hatching carry what colour does) and to colour-blind readers. A panel whose
experiment was not run says so.
"""

from __future__ import annotations

import io as byte_io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from experiments import documents
from experiments.documents import Document
from experiments.ledger import REPORTED, ledger, paper
from experiments.real_edges import load_model
from sembridge import io
from sembridge.draw import draw_figure, size_of
from sembridge.lowering import REFERENCE, SEMANTIC, lower
from sembridge.models import Deployment, result_edge
from sembridge.surfaces import Tokens

WIDTH = 3.33
"""Inches: one column of the paper."""

PAPER_COLOUR, OURS_COLOUR = "#bdbdbd", "#0072b2"
FULL, PROJECTED = "#e69f00", "#0072b2"
"""Of the palette of Okabe and Ito; the second is much darker than the first."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 6.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 6.5,
    "axes.titlelocation": "left",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 6,
    "legend.frameon": False,
    "svg.hashsalt": "sembridge",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}

FORMATS: dict[str, dict[str, Any]] = {
    "svg": {"metadata": {"Date": None, "Creator": "sembridge"}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": "sembridge", "Producer": None}},
    "png": {"metadata": {"Software": None}, "dpi": 300},
}


class Results:
    """The documents and raw rows of a folder, read where a figure asks for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def document(self, name: str) -> Document | None:
        """A result, or None where the experiment was not run."""
        exists = (self.folder / f"{name}.json").exists()
        return documents.read(self.folder, name) if exists else None

    def measured(self, experiment: str) -> dict[str, Any]:
        """Ours by claim; claims that were not run are not in it."""
        doc = self.document(experiment)
        return {} if doc is None else {c.name: c.ours for c in doc.lines if c.ours is not None}

    def notes(self, experiment: str) -> dict[str, Any]:
        """What an experiment left about its runs."""
        doc = self.document(experiment)
        return {} if doc is None else dict(doc.volatile.notes)

    def rows(self, experiment: str) -> list[dict[str, Any]]:
        """Raw rows, none where there are none."""
        path = self.folder / f"{experiment}.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [msgspec.json.decode(row) for row in lines]

    def benchmark(self, name: str) -> dict[str, Any] | None:
        """A committed benchmark."""
        path = self.folder / "benchmarks" / f"{name}.json"
        return json.loads(path.read_bytes()) if path.exists() else None


Draw = Callable[[Results], Any]
FIGURES: dict[str, Draw] = {}
"""Figures by file name; to add one, add a decorated function that returns a matplotlib figure."""


def figure(name: str) -> Callable[[Draw], Draw]:
    """Register a figure under its file name."""

    def register(draw: Draw) -> Draw:
        FIGURES[name] = draw
        return draw

    return register


@contextmanager
def style() -> Iterator[None]:
    """The style of all figures."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def write_figures(folder: Path, names: Iterable[str] = ()) -> None:
    """Draw every figure into ``figures/`` of a results folder, whatever the results' names.

    Raises:
        BadInput: a result is broken, or the folder cannot be written to.
    """
    results = Results(folder)
    (folder / "figures").mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        for suffix, data in pictures(draw, results).items():
            io.write(folder / "figures" / f"{name}.{suffix}", data)


def pictures(draw: Draw, results: Results, suffixes: Iterable[str] = FORMATS) -> dict[str, bytes]:
    """A figure in some formats, all by default, by suffix."""
    found: dict[str, bytes] = {}
    with style():
        drawn = draw(results)
        for suffix in suffixes:
            options, buffer = FORMATS[suffix], byte_io.BytesIO()
            drawn.savefig(buffer, format=suffix, **options)
            found[suffix] = buffer.getvalue()
    return found


def _axes(height: float, *places: tuple[float, float, float, float]) -> tuple[Any, list[Any]]:
    """A figure of column width, and axes at (left, bottom, width, height) in inches."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(WIDTH, height))
    axes = [drawn.add_axes((x / WIDTH, y / height, w / WIDTH, h / height)) for x, y, w, h in places]
    return drawn, axes


def _not_run(axes: Any) -> None:
    """Say that there is nothing to show, and keep the frame."""
    axes.set_xticks([])
    axes.set_facecolor("#f4f4f4")
    axes.text(
        0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", style="italic"
    )


# Figure 1 ---------------------------------------------------------------------------------------


def _plan(owner: int | None, reference: bool) -> Draw:
    def draw(results: Results) -> Any:
        deployment = Deployment(tp=4, rows=4, owner=owner)
        contract = result_edge(load_model("minimax-m2.7"), deployment, Tokens()).contract()
        plan = lower(contract, REFERENCE if reference else SEMANTIC)
        return draw_figure(contract, plan, width=WIDTH)

    return draw


FIGURES["figure1-R0"] = _plan(None, True)
FIGURES["figure1-P0"] = _plan(None, False)
FIGURES["figure1-S1"] = _plan(3, False)


# Figure 2 ---------------------------------------------------------------------------------------

TIMERS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "R0": (
        ("producer", "output head", "output_head_ms"),
        ("host", "logits to host", "logits_d2h_ms"),
        ("link", "socket blocked", "socket_blocked_ms"),
        ("ingest", "to device, AllGather, argmax", "h2d_allgather_sampling_ms"),
        ("next stage", "model interval", "next_stage_ms"),
    ),
    "P0": (
        ("producer", "output head", "output_head_ms"),
        ("", "projection", "projection_ms"),
        ("host", "token to host", "token_d2h_ms"),
        ("link", "socket blocked", "socket_blocked_ms"),
        ("ingest", "token to device", "token_h2d_ms"),
        ("next stage", "model interval", "next_stage_ms"),
    ),
}
"""Where, what, and which timer, in the order of the decode step."""


@figure("figure2")
def figure2(results: Results) -> Any:
    """Component durations per decode step: stages below one another, offset in logical order."""
    ours = results.measured("figure2")
    drawn, axes = _axes(3.9, *((x, y, 1.28, 1.3) for y in (2.25, 0.4) for x in (0.62, 2.0)))
    sides = (
        (REPORTED, PAPER_COLOUR, {n: paper(n) for n in ledger() if n.startswith("figure2.")}),
        ("ours, instrumented", OURS_COLOUR, ours),
    )
    titles = {"R0": "(a) full logits, R0", "P0": "(b) source projection, P0"}
    for row, plan in enumerate(TIMERS):
        for column, (who, colour, values) in enumerate(sides):
            panel = axes[2 * row + column]
            panel.set_title(f"{'' if column else titles[plan]}\n{who}")
            _timers(panel, plan, values, colour, labelled=not column)
            if row:
                panel.set_xlabel("ms per decode step")
    return drawn


def _timers(panel: Any, plan: str, values: dict[str, Any], colour: str, *, labelled: bool) -> None:
    stages = TIMERS[plan]
    panel.set_ylim(len(stages) - 0.4, -0.6)
    panel.set_yticks(range(len(stages)))
    panel.set_yticklabels([where for where, _, _ in stages] if labelled else [])
    panel.tick_params(axis="y", length=0)
    times = [values.get(f"figure2.{plan}.{timer}") for *_, timer in stages]
    if any(t is None for t in times):
        _not_run(panel)
        return
    longest = max(
        sum(values.get(f"figure2.{p}.{timer}", 0) for *_, timer in stages)
        for p, stages in TIMERS.items()
    )
    panel.set_xlim(0, 1.12 * longest)
    start = 0.0
    for y, ((_, what, _), time) in enumerate(zip(stages, times, strict=True)):
        panel.barh(y, time, left=start, height=0.5, color=colour, edgecolor="black", linewidth=0.4)
        label, end = f"{what}, {time:.3g}", start + time
        if what == "socket blocked":
            frames, size = (values.get(f"figure2.{plan}.{of}") for of in ("frames", "bytes"))
            label += "" if size is None else f"\n{frames} frames, {size_of(size)}"
        # Long labels and late bars have theirs above the bar, where there is room.
        above = y == len(stages) - 1 or (len(what) > 20 and end > 0.1 * longest)
        at = (0 if above else end) + 0.02 * longest
        panel.text(at, y - 0.42 if above else y, label, va="center", fontsize=5.2)
        start = end


# Figure 3 ---------------------------------------------------------------------------------------

CELLS = {"dense_tp4": "Dense TP4", "moe_tp2": "MoE TP2", "minimax": "MiniMax"}
GAINS = {
    "dense_tp4_long_output": "Dense TP4, long",
    "moe_tp2_64_tokens": "MoE TP2, 64",
    "moe_tp2_256_tokens": "MoE TP2, 256",
    "minimax_c1": "MiniMax, 1",
    "minimax_c8": "MiniMax, 8",
    "minimax_c16": "MiniMax, 16",
}


@figure("figure3")
def figure3(results: Results) -> Any:
    """Result traffic of a restart cell on a log scale, and restart-paired throughput effects."""
    drawn, (traffic, gains) = _axes(4.7, (0.72, 2.85, 2.45, 1.4), (0.95, 0.42, 2.22, 1.7))
    _traffic(traffic, results.measured("wire"))
    _gains(gains, results)
    return drawn


def _traffic(panel: Any, ours: dict[str, Any]) -> None:
    panel.set_title("(a) result traffic of a restart cell", x=-0.27, pad=22)
    panel.set_xscale("log")
    panel.set_xlim(1e4, 3e10)
    panel.set_xlabel("framed bytes, log scale")
    bars = (
        ("R0", REPORTED, "white", "", paper),
        ("R0", "ours, from plans", FULL, "", ours.get),
        ("P0", REPORTED, "white", "////", paper),
        ("P0", "ours, from plans", PROJECTED, "", ours.get),
    )
    for i, cell in enumerate(CELLS):
        for j, (plan, _, colour, hatch, value_of) in enumerate(bars):
            value = value_of(f"figure3.result_traffic_bytes.{cell}.{plan}")
            y = i + (j - 1.5) * 0.2
            if value is None:
                panel.text(1.3e4, y, "not run", va="center", fontsize=5, style="italic")
                continue
            panel.barh(
                y, value, height=0.18, color=colour, hatch=hatch, edgecolor="black", linewidth=0.4
            )
            panel.text(value * 1.25, y, size_of(int(value)), va="center", fontsize=5)
    panel.set_yticks(range(len(CELLS)), list(CELLS.values()))
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=c, hatch=h, edgecolor="black", linewidth=0.4, label=f"{p}, {who}")
        for p, who, c, h, _ in bars
    ]
    panel.legend(
        handles=handles, ncols=2, loc="lower left", bbox_to_anchor=(-0.3, 0.99), handlelength=1.2,
        columnspacing=1, borderpad=0, labelspacing=0.2,
    )  # fmt: skip


def _gains(panel: Any, results: Results) -> None:
    effects = results.notes("figure3").get("effects", {})
    panel.set_title(
        "(b) throughput of projection over full logits, fresh-process pairs", x=-0.4, pad=14
    )
    panel.axvline(0, color="black", linewidth=0.6)
    panel.spines["left"].set_visible(False)
    for i, (cell, _) in enumerate(GAINS.items()):
        claim = ledger()[f"figure3.throughput_gain_percent.{cell}"]
        _diamond(panel, i - 0.17, claim.paper, claim.ci95, "white")
        found = effects.get(cell, {}).get("throughput")
        if found is None:
            panel.text(2, i + 0.2, "not run", va="center", fontsize=5, style="italic")
            continue
        panel.plot(
            found["effects"], [i + 0.17] * len(found["effects"]), "o", ms=2.2, mfc="none",
            mec=OURS_COLOUR, mew=0.5,
        )  # fmt: skip
        _diamond(panel, i + 0.17, found["mean"], tuple(found["paired_t"]), OURS_COLOUR)
    panel.set_yticks(range(len(GAINS)), list(GAINS.values()))
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(GAINS) - 0.5, -0.5)
    panel.set_xlabel("throughput change, %")
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="D", ls="", ms=3, mfc=c, mec="black", mew=0.5, label=label)
        for c, label in (("white", REPORTED), (OURS_COLOUR, "ours, CPU and emulated link"))
    ]
    panel.legend(
        handles=handles, ncols=2, loc="lower left", bbox_to_anchor=(-0.43, 0.99), handlelength=1.2,
        columnspacing=1, borderpad=0,
    )  # fmt: skip


def _diamond(panel: Any, y: float, mean: float, ci95: Any, colour: str) -> None:
    """A mean with its interval."""
    if ci95 is not None:
        panel.plot(ci95, [y, y], "-", color="black", linewidth=0.8)
    panel.plot([mean], [y], "D", ms=3, mfc=colour, mec="black", mew=0.5)


# Figure 4 ---------------------------------------------------------------------------------------


@figure("figure4")
def figure4(results: Results) -> Any:
    """Traffic against replica multiplicity: savings beside equation 6, and our bytes per token."""
    drawn, (savings, traffic) = _axes(2.1, (0.42, 0.4, 1.2, 1.35), (2.05, 0.4, 1.2, 1.35))
    ours = results.measured("figure4")
    ranks = (1, 2, 4)
    savings.set_title("(a) host traffic saved, %")
    for i, k in enumerate(ranks):
        low, high = paper(f"figure4.tp{k}")
        savings.bar(
            i - 0.17, high, width=0.3, color="white", hatch="////", edgecolor="black",
            linewidth=0.5, label=REPORTED if not i else None,
        )  # fmt: skip
        savings.plot([i - 0.17] * 2, [low, high], "-", color="black", linewidth=1.5)
        value = ours.get(f"figure4.tp{k}")
        if value is not None:
            savings.bar(
                i + 0.17, value, width=0.3, color=OURS_COLOUR, edgecolor="black", linewidth=0.5,
                label="ours, live" if not i else None,
            )  # fmt: skip
        else:
            savings.text(
                i + 0.2, 2, "not run", rotation=90, fontsize=5, ha="center", style="italic"
            )
        savings.plot(
            [i - 0.38, i + 0.38], [100 * (1 - 1 / k)] * 2, "k--", linewidth=0.8,
            label="1 − 1/k (equation 6)" if not i else None,
        )  # fmt: skip
    savings.set_xticks(range(3), [f"TP{k}" for k in ranks])
    savings.set_ylim(0, 112)
    savings.legend(loc="upper left", borderpad=0, labelspacing=0.2, fontsize=5, handlelength=1.2)
    traffic.set_title("(b) ours, kB per token")
    bars = {(r["tp"], r["plan"]): r["bytes_per_token"] / 1e3 for r in results.rows("figure4")}
    if not bars:
        _not_run(traffic)
        traffic.set_yticks([])
        return drawn
    for j, (plan, colour, hatch) in enumerate(
        (("mapped copies", FULL, ""), ("representative", PROJECTED, ""))
    ):
        for i, k in enumerate(ranks):
            traffic.bar(
                i + (j - 0.5) * 0.36, bars[k, plan], width=0.34, color=colour, hatch=hatch,
                edgecolor="black", linewidth=0.5, label=plan if not i else None,
            )  # fmt: skip
    traffic.set_xticks(range(3), [f"TP{k}" for k in ranks])
    traffic.legend(loc="upper left", borderpad=0, labelspacing=0.2, fontsize=5)
    return drawn


# Our own ----------------------------------------------------------------------------------------


@figure("kill-matrix")
def kill_matrix(results: Results) -> Any:
    """Which rule refuses the mutants of operators that are about a given rule.

    Mutants that mean the same as before, or that are no input, are left out.
    """
    rows = results.rows("mutations")
    drawn, (panel,) = _axes(3.5, (1.15, 1.05, 1.8, 2.2))
    if not rows:
        _not_run(panel)
        panel.set_yticks([])
        return drawn
    columns = [c for c in rows[0]["refused_by"] if any(r["refused_by"][c] for r in rows)]
    about: dict[str, dict[str, int]] = {}
    size: dict[str, int] = {}
    for row in rows:
        rule = (row["expects"].split() or ["nothing"])[0]
        changed = row["mutants"] - row["equivalent"] - row["stillborn"]
        size[rule] = size.get(rule, 0) + changed
        found = about.setdefault(rule, dict.fromkeys(columns, 0))
        for column in columns:
            found[column] += row["refused_by"][column]
    order = [c for c in columns if c in about] + [r for r in about if r not in columns]
    order = [rule for rule in order if size[rule]]
    shares = [[about[r][c] / size[r] for c in columns] for r in order]
    image = panel.imshow(shares, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    panel.set_xticks(range(len(columns)), columns, rotation=90, fontsize=5.5)
    panel.set_yticks(range(len(order)), [f"{r} ({size[r]})" for r in order], fontsize=5.5)
    panel.tick_params(length=0)
    for y, rule in enumerate(order):
        if rule in columns:
            x = columns.index(rule)
            panel.add_patch(_box(x, y))
    panel.set_xlabel("refused by the rule")
    panel.set_title("mutation is about the rule (mutants)", x=-0.6)
    bar = drawn.colorbar(image, ax=None, cax=drawn.add_axes((0.91, 0.3, 0.025, 0.6)))
    bar.ax.set_title("share", fontsize=5.5)
    bar.ax.tick_params(labelsize=5.5)
    return drawn


def _box(x: float, y: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=OURS_COLOUR, linewidth=1)


LINES = (("-", "o"), ("--", "s"), ("-.", "^"), (":", "D"))


@figure("growth")
def growth(results: Results) -> Any:
    """How the oracle's family grows with the contract, and compile time with its endpoints."""
    drawn, (programs, seconds) = _axes(2.1, (0.42, 0.42, 1.15, 1.4), (2.1, 0.42, 1.15, 1.4))
    oracle, compiled = results.benchmark("oracle_growth"), results.benchmark("compile")
    programs.set_title("(a) programs of a contract")
    if oracle is None:
        _not_run(programs)
    else:
        kinds = list(dict.fromkeys(r["kind"] for r in oracle["rows"]))
        for (line, mark), kind in zip(LINES, kinds, strict=False):
            rows = [r for r in oracle["rows"] if r["kind"] == kind]
            x = [r["size"][0] for r in rows]
            y = [r["programs"] for r in rows]
            programs.plot(
                x, y, line, marker=mark, ms=2.5, color="black", linewidth=0.8, mfc="white",
                mew=0.6, label=kind,
            )  # fmt: skip
        programs.set_yscale("log")
        programs.set_ylim(1, 1e12)
        programs.set_xlabel("producers and consumers")
        programs.legend(fontsize=5, borderpad=0, labelspacing=0.2)
    seconds.set_title("(b) one compile, s")
    if compiled is None:
        _not_run(seconds)
    else:
        for (line, mark), (kind, sizes) in zip(
            LINES, compiled["volatile"]["growth"].items(), strict=False
        ):
            x = [int(n) for n in sizes]
            y = [found["seconds"] for found in sizes.values()]
            seconds.plot(
                x, y, line, marker=mark, ms=2.5, color="black", linewidth=0.8, mfc="white",
                mew=0.6, label=kind,
            )  # fmt: skip
        seconds.set_xscale("log")
        seconds.set_yscale("log")
        seconds.set_ylim(5e-4, 1e3)
        seconds.set_xlabel("endpoints")
        seconds.legend(fontsize=5, borderpad=0, labelspacing=0.2)
    return drawn
