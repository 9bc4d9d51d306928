"""What crosses for requests that the paper leaves at complete logits (§2.2), on three models.

Each surface is asked for by a contract of the real result edge, lowered, checked, and executed
against the full-logit reference; every byte below is the footprint of that plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.ledger import Check
from experiments.real_edges import MODELS, ROWS, load_model
from experiments.registry import Result, Settings, Table, experiment
from sembridge.contract import Contract
from sembridge.footprint import Footprint
from sembridge.kernels import KERNELS, numpy_dtype
from sembridge.layout import Shard
from sembridge.lowering import lower_valid
from sembridge.models import Deployment, ModelFacts, result_edge
from sembridge.obligations import resolve_valid
from sembridge.reference import execute_valid
from sembridge.serving.surface import decide
from sembridge.surfaces import (
    Choice,
    ChosenTokens,
    Complete,
    Logprobs,
    ShardedTokens,
    ShardedTopLogprobs,
    Surface,
    Tokens,
    TopLogprobs,
)

KEYED = Choice(temperature=0.8, top_k=50, top_p=0.95, seed=7, position=11)
BIASED = Choice(bias=tuple((100 * i, 1.5) for i in range(300)))
ALLOWED = Choice(allowed=tuple(range(1000)))

SURFACES: dict[str, Surface] = {
    "complete": Complete(),
    "logprobs": Logprobs(),
    "tokens": Tokens(),
    "top_logprobs(0)": TopLogprobs(k=0),
    "top_logprobs(5)": TopLogprobs(k=5),
    "top_logprobs(20)": TopLogprobs(k=20),
    "keyed sampling": ChosenTokens(choices=(KEYED,) * ROWS),
    "keyed, known everywhere": ChosenTokens(choices=(KEYED,) * ROWS, given="everywhere"),
    "keyed, top_logprobs(5)": TopLogprobs(k=5, choices=(KEYED,) * ROWS),
    "300 biases": ChosenTokens(choices=(BIASED,) * ROWS),
    "1000 allowed ids": ChosenTokens(choices=(ALLOWED,) * ROWS),
}
"""What a result edge of whole logits is asked for; the first three are the paper's."""

REQUESTS: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("logprobs: 0", {"logprobs": 0}, {}),
    ("logprobs: 5", {"logprobs": 5}, {}),
    ("logprobs: 20", {"logprobs": 20}, {}),
    ("logprobs: -1 (all)", {"logprobs": -1}, {}),
    ("prompt_logprobs: 5", {"prompt_logprobs": 5}, {}),
    ("logprobs: 5, processed", {"logprobs": 5}, {"logprobs_mode": "processed_logprobs"}),
    ("logit_bias", {"logit_bias": {"5": 1}}, {}),
    ("allowed_token_ids", {"allowed_token_ids": [5, 6]}, {}),
    ("logit_bias and logprobs: 5", {"logit_bias": {"5": 1}, "logprobs": 5}, {}),
    ("temperature, seed", {"temperature": 1, "seed": 3}, {}),
    ("temperature, seed, keyed engine", {"temperature": 1, "seed": 3}, {"keyed_sampling": True}),
    ("temperature, keyed engine", {"temperature": 1}, {"keyed_sampling": True}),
    ("presence_penalty", {"presence_penalty": 1}, {}),
    ("structured_outputs", {"structured_outputs": {"regex": "a+"}}, {}),
)
"""Requests by what they add to a greedy one, with the engine's options."""


def whole(model: ModelFacts, tp: int, surface: Surface, owner: int | None) -> Contract:
    """The result edge with complete logits on every lane."""
    deployment = Deployment(tp=tp, rows=ROWS, owner=owner)
    return result_edge(model, deployment, surface).contract()


def shards(model: ModelFacts, tp: int, k: int | None, owner: int | None) -> Contract:
    """The result edge before the lanes gather: equal shards of the vocabulary, the last padded."""
    vocabulary = model.valid_vocab
    surface: Surface = (
        ShardedTokens(vocabulary=vocabulary)
        if k is None
        else ShardedTopLogprobs(k=k, vocabulary=vocabulary)
    )
    named = result_edge(model, Deployment(tp=tp, rows=ROWS, owner=owner), surface, name="shards")
    value = msgspec.structs.replace(
        named.edge.value, shape=(ROWS, -(-vocabulary // tp)), valid_last=None
    )
    edge = msgspec.structs.replace(named.edge, value=value, placement=Shard(dim=1))
    return msgspec.structs.replace(named, edge=edge).contract()


def gathered_bytes(contract: Contract) -> int:
    """Local bytes of the all-gather by which every lane would get the whole logits."""
    ob = resolve_valid(contract)
    lanes = len(ob.producers)
    return lanes * (lanes - 1) * ob.value_bytes


def judged(contract: Contract) -> tuple[Footprint, str, str]:
    """Footprint, verdict and execution of the lowered plan."""
    ob = resolve_valid(contract)
    plan, report = lower_valid(ob)
    execution = execute_valid(ob, plan, variants=1)
    return report.footprint, str(report.verdict), str(execution.outcome)


def revealing_rows(vocabulary: int, dtype: str) -> NDArray[Any]:
    """Rows with ties, masks, NaN and infinities at both ends and across the lanes' seams."""
    rng = np.random.default_rng(vocabulary)
    rows = rng.normal(0, 4, (6, vocabulary)).astype(np.float32)
    seam = vocabulary // 2
    rows[1, [0, seam - 1, seam, vocabulary - 1]] = 40
    rows[2, :] = -np.inf
    rows[3, rng.random(vocabulary) < 0.9] = -np.inf
    rows[4, [seam + 1, vocabulary - 2]] = np.nan
    rows[5, [seam, vocabulary - 1]] = np.inf
    return rows.astype(numpy_dtype(dtype))


def full_logit_answer(row: NDArray[Any], k: int) -> tuple[list[int], int, float]:
    """The k first columns, the token's rank and log-sum-exp, by NumPy alone."""
    wide = row.astype(np.float64)
    order = np.lexsort((np.arange(row.size), -wide, ~np.isnan(wide)))[:k]
    top = wide[order[0]]
    rank = int(np.isnan(wide).sum() if np.isnan(top) else (wide == top).sum())
    with np.errstate(invalid="ignore"):
        summed = top + np.log(np.exp(wide - top).sum()) if np.isfinite(top) else top
    return [int(i) for i in order], rank, float(summed)


def compared(model: ModelFacts, tp: int, dtype: str) -> Iterator[tuple[bool, float]]:
    """For each revealing row: whether ids, rank and shards agree, and log-sum-exp's error."""
    rows = revealing_rows(model.valid_vocab, dtype)
    kernel = KERNELS["top_logprobs"]
    records = kernel.whole(rows, TopLogprobs(k=20).projected, ())
    sharded = KERNELS["sharded_top_logprobs"]
    projected = ShardedTopLogprobs(k=20, vocabulary=model.valid_vocab).projected
    width = -(-model.valid_vocab // tp)
    assert sharded.local is not None
    assert sharded.combine is not None
    parts = [
        sharded.local(rows[:, i * width : (i + 1) * width], projected, i * width) for i in range(tp)
    ]
    combined = sharded.combine(parts, projected)
    for r, row in enumerate(rows):
        ids, rank, summed = full_logit_answer(row, 20)
        record = records[r]
        agrees = (
            record["ids"].tolist() == ids
            and (int(record["token"]), int(record["rank"])) == (ids[0], rank)
            and combined[r].tobytes() == record.tobytes()
        )
        found = float(record["logsumexp"])
        same = found == summed or (np.isnan(found) and np.isnan(summed))
        yield agrees, 0.0 if same else abs(found - summed) / abs(summed)


@experiment("surfaces", "Surfaces beyond the paper: bytes per step, and the same observation")
def surfaces(settings: Settings) -> Result:
    """Lower, check and execute every surface on three models, with and without an owner."""
    records: list[dict[str, Any]] = []
    figures: dict[tuple[str, str, bool], Footprint] = {}
    work = [(name, owned) for name in MODELS for owned in (False, True)]
    for i, (name, owned) in enumerate(work):
        if settings.progress:
            settings.progress(i, len(work), name)
        model, tp = load_model(name), MODELS[name][1]
        owner = tp - 1 if owned else None
        asked = {s: whole(model, tp, surface, owner) for s, surface in SURFACES.items()}
        asked["sharded_tokens"] = shards(model, tp, None, owner)
        asked["sharded_top_logprobs(5)"] = shards(model, tp, 5, owner)
        for surface, contract in asked.items():
            footprint, verdict, execution = judged(contract)
            figures[name, surface, owned] = footprint
            records.append(
                {
                    "model": name,
                    "surface": surface,
                    "owner": owned,
                    "footprint": list(footprint),
                    "verdict": verdict,
                    "execution": execution,
                }
            )
    rows = [
        item
        for name in MODELS
        for dtype in ("float32", "bfloat16")
        for item in compared(load_model(name), MODELS[name][1], dtype)
    ]
    return Result(
        name="surfaces",
        how="contracts of real result edges, lowered, checked, and executed against the full-logit "
        "reference; kernels compared with complete logits on revealing rows",
        checks=(*_checks(records, figures), *_same(rows)),
        tables=(_bytes_table(figures), _gather_table(figures), _request_table()),
        records=tuple(records),
    )


def _checks(
    records: list[dict[str, Any]], figures: Mapping[tuple[str, str, bool], Footprint]
) -> Iterator[Check]:
    minimax = "minimax-m2.7"

    def cross(surface: str, owned: bool, model: str = minimax) -> int:
        return figures[model, surface, owned].cross_bytes

    yield Check(
        name="MiniMax, batch of 4: complete logits",
        where="§2.2",
        ours=cross("complete", False),
        expected=3_201_024,
    )
    for lanes, owned, expected in (("4 lanes", False, 64), ("owner", True, 16)):
        yield Check(
            name=f"MiniMax, tokens, {lanes}",
            where="§2.2",
            ours=cross("tokens", owned),
            expected=expected,
        )
    five = cross("top_logprobs(5)", True)
    yield Check(
        name="MiniMax, top_logprobs(5), owner, under 1 kB",
        where="beyond the paper",
        ours=five < 1000,
        expected=True,
        note=f"{five} bytes",
    )
    for name in MODELS:
        for owned in (False, True):
            paper, ours = cross("logprobs", owned, name), cross("top_logprobs(5)", owned, name)
            yield Check(
                name=f"{name}, {'owner' if owned else 'mapped'}: log-probabilities in over 99.9% "
                "fewer bytes than complete logits",
                where="beyond the paper",
                ours=ours < paper / 1000,
                expected=True,
                note=f"{ours} of {paper} bytes",
            )
    yield Check(
        name="plans accepted by the checker and equal to the full-logit reference",
        where="beyond the paper",
        ours=sum((r["verdict"], r["execution"]) == ("legal", "equal") for r in records),
        expected=len(records),
    )


def _same(rows: list[tuple[bool, float]]) -> Iterator[Check]:
    yield Check(
        name="revealing rows whose ids, rank and combined shards are the full logits'",
        where="beyond the paper",
        ours=sum(agrees for agrees, _ in rows),
        expected=len(rows),
    )
    yield Check(
        name="revealing rows whose log-sum-exp is within a float32 rounding",
        where="beyond the paper",
        ours=sum(error <= 2.0**-23 for _, error in rows),
        expected=len(rows),
    )


def _bytes_table(figures: Mapping[tuple[str, str, bool], Footprint]) -> Table:
    names = dict.fromkeys(surface for _, surface, _ in figures)
    columns = [(model, owned) for model in MODELS for owned in (False, True)]
    return Table(
        title="Cross-domain payload bytes / startups of one step",
        columns=(
            "surface",
            *(f"{model}{', owner' if owned else ''}" for model, owned in columns),
        ),
        rows=tuple(
            (
                name,
                *(
                    "{} / {}".format(*tuple(figures[model, name, owned])[:2])
                    for model, owned in columns
                ),
            )
            for name in names
        ),
        note=f"{ROWS} rows; float32 logits, int32 ids. Keyed sampling and modifiers count their "
        "parameters, which cross to the producers first unless they are known there.",
    )


def _gather_table(figures: Mapping[tuple[str, str, bool], Footprint]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, (_, tp) in MODELS.items():
        gathered = gathered_bytes(shards(load_model(name), tp, None, None))
        for surface in ("sharded_tokens", "sharded_top_logprobs(5)"):
            found = figures[name, surface, False]
            rows.append((name, surface, gathered, found.local_bytes, found.cross_bytes))
    return Table(
        title="Vocabulary shards: local bytes with and without the producers' all-gather",
        columns=("model", "surface", "all-gather of logits", "combine and broadcast", "crosses"),
        rows=tuple(rows),
    )


def _request_table() -> Table:
    rows: list[tuple[Any, ...]] = []
    for shown, change, engine in REQUESTS:
        found = decide({"temperature": 0, **change}, api="vllm", engine=engine)
        rows.append((shown, found.paper_surface, found.surface))
    return Table(
        title="What a request's fields ask for: the paper's contract, and this kit's registry",
        columns=("request", "paper's surface", "surface here"),
        rows=tuple(rows),
        note="A keyed engine samples by the kit's kernel; without that, or without a seed, "
        "sampling keeps complete logits.",
    )
