"""A real model across the boundary: the live commands."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from msgspec.structs import replace

from sembridge import io
from sembridge.cli.console import Json, Output, Quiet, emit, emit_bytes, err, out, table
from sembridge.draw import describe, size_of
from sembridge.errors import BadInput
from sembridge.live.link import LinkSpec
from sembridge.live.netns import namespaces
from sembridge.live.probe import measure
from sembridge.obligations import resolve_valid

if TYPE_CHECKING:  # importing them loads torch and transformers
    from sembridge.live.session import Ask, Planned, Served, Site

BODIES: dict[str, tuple[dict[str, Any], bool]] = {
    "tokens": ({"temperature": 0}, False),
    "logprobs": ({"temperature": 0, "logprobs": 0}, False),
    "top-logprobs": ({"temperature": 0, "logprobs": 5}, True),
}
"""Request bodies (vLLM's sampling parameters) by the surface that they imply, and whether the
kit's own registry answers rather than the paper's contract."""

Rate = Annotated[
    float | None, typer.Option(help="Emulate a link of so many Mbit/s between the domains.")
]
Rtt = Annotated[float, typer.Option(help="Emulated round-trip time in ms.")]
Shaped = Annotated[
    bool,
    typer.Option("--shaped", help="Shape the rate by the kernel, in network namespaces (as root)."),
]
Head = Annotated[str, typer.Option(help="Native communicator of the head's domain.")]
Tail = Annotated[str, typer.Option(help="Native communicator of the tail's domain.")]
Deadline = Annotated[float, typer.Option(help="Seconds after which the run is ended.")]


def live(
    model: Annotated[
        str, typer.Option(help="smollm2, or random weights: qwen3, qwen3-moe, minimax-m2.")
    ] = "smollm2",
    prompt: Annotated[
        list[str] | None, typer.Option(help="Prompt; several make a batch of one token length.")
    ] = None,
    surface: Annotated[
        str, typer.Option(help=f"What is asked for: {', '.join(BODIES)}.")
    ] = "tokens",
    request: Annotated[
        Path | None, typer.Option(help="vLLM sampling parameters (JSON) instead of --surface.")
    ] = None,
    owner: Annotated[
        int | None, typer.Option(help="Tail rank that owns the decision, where one does.")
    ] = None,
    tp: Annotated[
        int | None,
        typer.Option(help="Lanes on each side: 1 or 3 for smollm2; by default 1, else 2."),
    ] = None,
    tokens: Annotated[int, typer.Option(help="Most tokens of each row.")] = 32,
    cut: Annotated[
        int | None, typer.Option(help="Layers before the boundary, half of them by default.")
    ] = None,
    rate: Rate = None,
    rtt: Rtt = 0.0,
    shaped: Shaped = False,
    head: Head = "gloo",
    tail: Tail = "gloo",
    deadline: Deadline = 600.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a model with its head in one domain and its tail in another, and count what crosses.

    The request decides the surface, the surface the contracts, those the plans, and the engines
    get switches read off the plans. Every consumer is held against the unsplit model: exits with
    1 where one differs, or where bytes are not the plans'.

    Examples: `sembridge live --prompt "What is a replica?"` ·
    `sembridge live --model smollm2 --tp 3 --owner 2 --prompt "Name a colour." --tokens 12` ·
    `sembridge live --model minimax-m2 --tp 4 --surface logprobs --rate 1000 --rtt 0.3 --json`
    """
    from sembridge.live import parts
    from sembridge.live.session import Ask, Site

    body, own = _body(surface, request)
    lanes = tp or (1 if model == parts.REAL else 2)
    site = Site(tp=lanes, head=head, tail=tail, cut=cut, link=_link(rate, rtt), deadline_s=deadline)
    _say(quiet or as_json, f"loading {model}")
    whole = parts.load(model)
    text = parts.tokenizer(model) if model == parts.REAL else None
    prompts = _prompts(text, prompt)
    steps, stop = _ends(body, tokens, () if text is None else (int(whole.config.eos_token_id),))
    ask = Ask(
        id="request", body=body, prompts=prompts, steps=steps, stop=stop, owner=owner, own=own
    )
    show = None if quiet or as_json or text is None else _stream(text)

    said_before: dict[str, Any] = {}

    def before(planned: Sequence[Planned]) -> None:
        said_before.update(_planned(planned[0]))
        if not (quiet or as_json):
            _show_plans(planned[0])

    with _linked(site, rate, shaped) as site:
        (served,), volatile = _serve(whole, site, [ask], before, show, quiet or as_json)
    said = [text.decode(row, skip_special_tokens=True) for row in served.tokens] if text else []
    if as_json:
        emit({"model": model, **_site(site), **said_before, **_document(served), "text": said,
              "volatile": volatile})  # fmt: skip
    else:
        if show:
            out.print()
        for line in said if len(said) > 1 or not show else []:
            out.print(line, markup=False)
        if not text:
            out.print(f"tokens {served.tokens}")
        _print(f"{model}, {lanes} lanes a side, {served.steps} steps", [served], quiet)
    if not served.holds:
        raise typer.Exit(1)


def live_surfaces(
    model: Annotated[str, typer.Option(help="Any of the models of `live`.")] = "minimax-m2",
    tp: Annotated[int, typer.Option(help="Lanes on each side.")] = 4,
    rate: Rate = None,
    rtt: Rtt = 0.0,
    shaped: Shaped = False,
    head: Head = "gloo",
    tail: Tail = "gloo",
    deadline: Deadline = 600.0,
    output: Output = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve log-probability, token-only and owner-scoped requests by one pair of engines (§6.3).

    Frames and bytes are held against the plans' wire accounting, and stand beside the totals that
    the paper reports, which `minimax-m2` on 4 lanes has to give exactly. Exits with 1 where
    anything differs.

    Examples: `sembridge live-surfaces` · `sembridge live-surfaces --model qwen3 --tp 2 --json`
    """
    from sembridge.live import parts
    from sembridge.live.session import Site, switching, totals

    link = _link(None if shaped else rate, rtt)
    site = Site(tp=tp, head=head, tail=tail, link=link, deadline_s=deadline)
    _say(quiet or as_json, f"loading {model}")
    whole = parts.load(model)
    asks = switching(tp, whole.config.vocab_size)
    with _linked(site, rate, shaped) as site:
        served, volatile = _serve(whole, site, asks, lambda planned: None, None, quiet or as_json)
    classes = totals(served)
    holds = all(s.holds for s in served)
    document = {
        "model": f"{model}, {'real' if model == parts.REAL else 'seeded random'} weights",
        "vocabulary": whole.config.vocab_size,
        **_site(site),
        "holds": holds,
        "classes": classes,
        "requests": [_document(s) for s in served],
        "volatile": volatile,
    }
    if output is not None:
        io.write(output, io.encode(document))
    if as_json:
        emit_bytes(io.encode(document))
    else:
        rows = [
            (
                name,
                c.result.frames,
                c.result.framed,
                f"{c.matched} of {c.consumers}",
                ", ".join(map(str, c.senders)),
            )
            for name, c in classes.items()
        ]
        columns = ("requests", "result frames", "framed bytes", "consumers matched", "senders")
        out.print(table(f"{model}, {tp} lanes, one pair of engines", columns, rows))
        _print("Requests", served, quiet)
    if not holds:
        raise typer.Exit(1)


def live_mlp(
    weights: Annotated[
        Path | None, typer.Option(help="A safetensors file with layer 0 of Qwen3-14B.")
    ] = None,
    layer: Annotated[int, typer.Option(help="The layer in that file.")] = 0,
    tokens: Annotated[str, typer.Option(help="Token counts, by comma.")] = "1,8,64",
    backend: Annotated[str, typer.Option(help="Native communicator of both domains.")] = "gloo",
    output: Output = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the MLP slice at Qwen3-14B's dimensions over the boundary (§6.4, table 3).

    Activation shards cross exactly, partials are completed by a native all-reduce. Weights are
    seeded random ones unless a file is given; the result says which. Exits with 1 where a shard
    is not delivered bit for bit, or outputs differ.

    Examples: `sembridge live-mlp` · `sembridge live-mlp --weights model-00001.safetensors --json`
    """
    from sembridge.live import mlp

    try:
        counts = [int(t) for t in tokens.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise BadInput("token counts are positive integers, by comma", path="--tokens")
    _say(quiet or as_json, "reading weights" if weights else "drawing weights")
    found = mlp.read_weights(weights, layer=layer) if weights else mlp.random_weights()
    rows = mlp.table3(found, counts, backend=backend)
    holds = all(row.holds and sent == wire for row, wire, sent in rows)
    document = {
        "weights": found.origin,
        "dimensions": [mlp.HIDDEN, mlp.INTERMEDIATE],
        "dtype": "bfloat16",
        "lanes": mlp.LANES,
        "backend": backend,
        "holds": holds,
        "rows": [{"row": row, "sent": sent, "wire": wire} for row, wire, sent in rows],
    }
    if output is not None:
        io.write(output, io.encode(document))
    if as_json:
        emit_bytes(io.encode(document))
    else:
        cells = [
            (
                row.tokens,
                "bitwise" if row.bitwise else "differs",
                ("distinct" if row.distinct else "same")
                + (" -> equal" if row.equal else " -> unequal"),
                f"{row.relative_l2_percent:.3f}",
                f"{row.max_error_over_peak_percent:.3f}",
                sent["mlp.activation"].framed,
            )
            for row, _, sent in rows
        ]
        title = f"MLP slice, {mlp.HIDDEN} x {mlp.INTERMEDIATE}, {found.origin}"
        columns = ("tokens", "shard delivery", "partial completion", "relative L2 (%)",
                   "max error / peak (%)", "framed bytes")  # fmt: skip
        out.print(table(title, columns, cells))
    if not holds:
        raise typer.Exit(1)


def _body(surface: str, request: Path | None) -> tuple[dict[str, Any], bool]:
    if request is not None:
        try:
            return io.decode(io.read_bytes(request), dict[str, Any]), False
        except BadInput as error:
            raise error.within(error.file or str(request)) from None
    if surface not in BODIES:
        raise BadInput(f"no surface {surface!r}: one of {', '.join(BODIES)}", path="--surface")
    return BODIES[surface]


def _link(rate: float | None, rtt: float) -> LinkSpec:
    if (rate is not None and rate <= 0) or rtt < 0:
        raise BadInput("a link has a positive rate, and no negative round trip", path="--rate")
    return LinkSpec(rate_bit_s=None if rate is None else rate * 1e6, rtt_s=rtt / 1e3)


def _prompts(text: Any, prompts: list[str] | None) -> tuple[tuple[int, ...], ...]:
    """Token ids of the prompts, in the model's chat format."""
    if text is None:
        if prompts:
            raise BadInput("a model with random weights reads no text", path="--prompt")
        return ((11, 7, 5, 3, 2),)
    given = prompts or ["What is the capital of France?"]
    ids: list[tuple[int, ...]] = []
    for one in given:
        chat = [{"role": "user", "content": one}]
        whole = text.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        ids.append(tuple(text(whole, add_special_tokens=False)["input_ids"]))
    if len(set(map(len, ids))) > 1:
        counts = ", ".join(str(len(one)) for one in ids)
        raise BadInput(
            f"a batch has prompts of one length, not of {counts} tokens", path="--prompt"
        )
    return tuple(ids)


def _ends(body: dict[str, Any], tokens: int, end: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Most tokens, and the ids that end a row: fields that consumers act on, as ids come."""
    if body.get("stop"):
        raise BadInput("the live engines stop at token ids, not at strings", path="$.stop")
    most, asked = body.get("max_tokens"), cast("list[object]", body.get("stop_token_ids") or [])
    stops = tuple(i for i in asked if isinstance(i, int))
    steps = most if isinstance(most, int) else tokens
    return steps, stops if body.get("ignore_eos") is True else end + stops


def _serve(
    whole: Any,
    site: Site,
    asks: Sequence[Ask],
    before: Callable[[Sequence[Planned]], None],
    show: Callable[[str, dict[str, Any]], None] | None,
    quiet: bool,
) -> tuple[list[Served], dict[str, Any]]:
    """Plan, run, and judge; what was served, and what varies from run to run."""
    from sembridge.live import parts, session

    with tempfile.TemporaryDirectory(prefix="sembridge-model-") as place:
        folder = Path(place)
        parts.save(whole, folder)
        facts = session.facts_of(folder)
        planned = [session.plan(facts, site, ask) for ask in asks]
        before(planned)
        _say(quiet, "measuring the link")
        measured = measure(session.sides(site, 1), link=site.link)
        _say(quiet, "starting the engines")
        outcome = session.run(folder, site, planned, on_event=show or (lambda rank, event: None))
    _say(quiet, "comparing with the unsplit model")
    references = {
        ask.id: parts.greedy(whole, ask.prompts, _steps(outcome.results, i))
        for i, ask in enumerate(asks)
    }
    volatile = {
        "seconds": outcome.seconds,
        "link": measured,
        "torch": str(parts.torch.__version__),
        "transformers": str(parts.transformers.__version__),
    }
    return session.judge(planned, outcome, references), volatile


@contextmanager
def _linked(site: Site, rate: float | None, shaped: bool) -> Generator[Site]:
    """The site with its ends in network namespaces, where the kernel is to shape the link."""
    if not shaped:
        yield site
        return
    with namespaces(None if rate is None else rate * 1e6) as ends:
        yield replace(site, namespaces=ends)


def _steps(results: dict[str, Any], request: int) -> int:
    return len(results["head/0"][request]["tokens"])


def _stream(text: Any) -> Callable[[str, dict[str, Any]], None]:
    """Print the first row's text as it comes."""
    ids: list[int] = []
    shown = ""

    def show(rank: str, event: dict[str, Any]) -> None:
        nonlocal shown
        ids.append(event["tokens"][0])
        now = text.decode(ids, skip_special_tokens=True)
        if not now.endswith("�"):  # half of a character
            sys.stdout.write(now[len(shown) :])
            sys.stdout.flush()
            shown = now

    return show


def _say(quiet: bool, what: str) -> None:
    if not quiet and err.is_terminal:
        err.print(f"{what} ...", style="dim")


def _show_plans(planned: Planned) -> None:
    """The plans of a decode step, and the switches read off them."""
    decision, (_, switches) = planned.decision, planned.switches
    surface = decision.surface if planned.ask.own else decision.paper_surface
    out.print(f"surface  {surface}, decided by {', '.join(decision.decided_by)}", markup=False)
    out.print(
        f"switches forward {switches.forward_aggregation}, result {switches.result_aggregation}, "
        f"result fanout {'on' if switches.result_fanout else 'off'}"
    )
    for edge, plan in planned.plans[1].items():
        ob = resolve_valid(getattr(planned.request.then, edge).contract)
        ops = "; ".join(describe(ob, op) for op in plan.ops)
        out.print(f"{edge:<8} {ops}", markup=False)
    out.print()


def _planned(planned: Planned) -> dict[str, Any]:
    """The same for a document: who decided, the switches, and the plans' ops."""
    _, switches = planned.switches
    return {
        "decided_by": planned.decision.decided_by,
        "switches": {
            "forward_aggregation": switches.forward_aggregation,
            "result_aggregation": switches.result_aggregation,
            "result_fanout": switches.result_fanout,
        },
        "plans": {edge: plan.ops for edge, plan in planned.plans[1].items()},
    }


def _site(site: Site) -> dict[str, Any]:
    return {
        "lanes": site.tp,
        "backends": {"head": site.head, "tail": site.tail},
        "link": _shown_link(site),
    }


def _shown_link(site: Site) -> dict[str, Any]:
    """What the link was asked to be; what it measured is another matter."""
    ends, spec = site.namespaces, site.link
    kind = "namespaces" if ends else "emulated" if spec.shaped else "loopback"
    rate = ends.rate_bit_s if ends else spec.rate_bit_s
    return {"kind": kind, "rate_bit_s": rate, "rtt_s": spec.rtt_s}


def _document(served: Served) -> dict[str, Any]:
    return {
        "id": served.id,
        "surface": served.surface,
        "holds": served.holds,
        "steps": served.steps,
        "tokens": served.tokens,
        "sent": served.sent,
        "wire": served.wire,
        "senders": served.senders,
        "consumers_matched": [served.matched, served.consumers],
    }


def _print(title: str, served: Sequence[Served], quiet: bool) -> None:
    rows = [
        (
            s.id,
            s.surface,
            edge,
            s.sent[edge].frames,
            s.sent[edge].framed,
            s.wire[edge].framed,
            size_of(s.sent[edge].payload),
            f"{s.matched} of {s.consumers}" if edge == "result" else "",
        )
        for s in served
        for edge in s.sent
    ]
    columns = ("request", "surface", "edge", "frames", "framed bytes", "by the plans", "payload",
               "consumers matched")  # fmt: skip
    if not quiet:
        out.print(table(title, columns, rows))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(live)
    app.command()(live_surfaces)
    app.command()(live_mlp)
