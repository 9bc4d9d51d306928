"""The byte totals that the paper prints, from plans alone (figure 2, figure 3, live run)."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.paper import PAPER
from experiments.real_edges import load_model
from experiments.registry import Claim, Result, Settings, Table, exactly, experiment
from sembridge.lowering import REFERENCE, SEMANTIC, Policy, lower_valid
from sembridge.models import Deployment, result_edge
from sembridge.obligations import resolve_valid
from sembridge.surfaces import Logprobs, Surface, Tokens
from sembridge.wire import Framed, framed

NOTHING = Framed(frames=0, payload=0, framed=0)


def steps(rows: int, count: int) -> list[int]:
    """``rows`` result rows over ``count`` decode steps, as even as they go.

    How the paper batched them is not printed, and the totals do not depend on it.
    """
    least, more = divmod(rows, count)
    return [least + (i < more) for i in range(count)]


def total(
    rows_per_step: Sequence[int],
    surface: Surface,
    *,
    owner: int | None = None,
    policy: Policy = SEMANTIC,
) -> Framed:
    """Framed traffic of MiniMax's result edge on 4 lanes over several decode steps."""
    minimax = load_model("minimax-m2.7")
    traffic = NOTHING
    for rows in rows_per_step:
        deployment = Deployment(tp=4, rows=rows, owner=owner)
        ob = resolve_valid(result_edge(minimax, deployment, surface).contract())
        traffic += framed(ob, lower_valid(ob, policy)[0].ops)
    return traffic


@experiment("wire", "Framed bytes of plans against the totals that the paper prints")
def wire(settings: Settings) -> Result:
    """Figure 2's two plans, the live surface-switching run, and figure 3's MiniMax cell."""
    figure2 = PAPER["figure2_minimax_concurrency16_per_step"]
    live = PAPER["live_surface_switching"]
    cell = PAPER["figure3"]["result_traffic_bytes"]["minimax"]
    r0 = total([4], Tokens(), policy=REFERENCE)
    p0 = total([4], Tokens())
    logprobs = total(steps(17, 9), Logprobs())
    tokens = total(steps(17, 5), Tokens())
    owner = total(steps(17, 5), Tokens(), owner=3)
    cell_r0 = total(steps(2049, 257), Tokens(), policy=REFERENCE)
    cell_p0 = total(steps(2049, 257), Tokens())
    measured = {
        "figure 2, R0, one step": (r0, figure2["R0"]["frames"], figure2["R0"]["bytes"]),
        "figure 2, P0, one step": (p0, figure2["P0"]["frames"], figure2["P0"]["bytes"]),
        "live, log-probabilities": (logprobs, *_pair(live["logprobs"])),
        "live, tokens": (tokens, *_pair(live["token_only"])),
        "live, owner's token": (owner, *_pair(live["owner_scoped"])),
    }
    claims: list[Claim] = []
    for name, (ours, frames, size) in measured.items():
        where = "Figure 2" if name.startswith("figure") else "§6.3"
        claims.append(exactly(f"{name}: frames", where, paper=frames, ours=ours.frames))
        claims.append(exactly(f"{name}: framed bytes", where, paper=size, ours=ours.framed))
    claims += [
        exactly(
            "figure 2: traffic reduction, R0 over P0, rounded",
            "Figure 2",
            paper=figure2["reduction_factor"],
            ours=round(r0.framed / p0.framed),
        ),
        exactly(
            "figure 3, MiniMax R0 cell in GB, as printed",
            "Figure 3",
            paper=f"{cell['R0'] / 1e9:.3f}",
            ours=f"{cell_r0.framed / 1e9:.3f}",
        ),
        exactly(
            "figure 3, MiniMax P0 cell in kB, as printed",
            "Figure 3",
            paper=f"{cell['P0'] / 1e3:.1f}",
            ours=f"{cell_p0.framed / 1e3:.1f}",
        ),
    ]
    table = Table(
        title="Framed bytes: reported by the paper / from our plans",
        columns=("run", "frames", "framed bytes", "payload bytes"),
        rows=tuple(
            (name, f"{frames} / {ours.frames}", f"{size} / {ours.framed}", ours.payload)
            for name, (ours, frames, size) in measured.items()
        ),
        note="48 header bytes a frame and 82 bytes of metadata on a frame that carries a slice: "
        "derived from the paper's totals, which it does not explain. Nothing here was sent.",
    )
    return Result(
        name="wire",
        how="wire accounting of lowered plans; no bytes were sent",
        claims=tuple(claims),
        tables=(table,),
    )


def _pair(run: dict[str, int]) -> tuple[int, int]:
    return run["frames"], run["bytes"]
