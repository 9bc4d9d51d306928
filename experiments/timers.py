"""Component timers of a decode step (figure 2), taken at the ranks of an instrumented run.

The engine is the one that serves; here its parts and its carrier are wrapped with clocks. Times
are local to a rank and overlap, so they do not add up. On CPU nothing is copied between devices:
what takes the place of a copy is the view of the tensor's bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean
from time import monotonic_ns
from typing import Any

WARM = "warm"
RESULT_EDGE = 2


class Clocks:
    """Nanoseconds by component, and the moments at which logits and head stages were done."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = defaultdict(int)
        self.moments: dict[str, list[int]] = {"logits": [], "stage": []}

    def wrap(self, owner: Any, method: str, component: Callable[..., str | None]) -> None:
        """Time a method; ``component`` names the clock from its arguments, None for none."""
        plain = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            name, start = component(*args, **kwargs), monotonic_ns()
            try:
                return plain(*args, **kwargs)
            finally:
                if name is not None:
                    self.spent[name] += monotonic_ns() - start

        setattr(owner, method, timed)

    def mark(self, owner: Any, method: str, moment: str) -> None:
        """Note when a method returns."""
        plain = getattr(owner, method)

        def marked(*args: Any, **kwargs: Any) -> Any:
            found = plain(*args, **kwargs)
            self.moments[moment].append(monotonic_ns())
            return found

        setattr(owner, method, marked)


def serve(rank: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The engine's task under clocks: what it saw, and the clocks of the measured request.

    A rank is a process of its own, so what is wrapped here is wrapped nowhere else.
    """
    from sembridge.live import executor, parts
    from sembridge.live import serve as serving
    from sembridge.live.backends import Communicator
    from sembridge.live.carrier import Connection

    clocks, head = Clocks(), rank.domain == serving.HEAD
    result: list[bool] = [False]

    def here(name: str, where: bool) -> Callable[..., str | None]:
        return lambda *_args, **_kwargs: name if where and result[0] else None

    plain_run = rank.run

    def run(*args: Any, **kwargs: Any) -> Any:
        result[0] = kwargs.get("edge") == RESULT_EDGE
        try:
            return plain_run(*args, **kwargs)
        finally:
            result[0] = False

    rank.run = run
    clocks.wrap(executor._Execution, "_project", here("sampling" if head else "projection", True))
    clocks.wrap(executor._Execution, "observation", here("to_device", head))
    clocks.wrap(executor.Rank, "_enter", here("to_host", not head))
    clocks.wrap(Communicator, "all_gather", here("all_gather", head))
    clocks.wrap(Connection, "send", here("socket", not head))
    clocks.mark(parts.Head if head else parts.Tail, "step", "stage" if head else "logits")
    clocks.wrap(parts.torch.nn.Linear, "forward", lambda module, *_a: _head_of(module))
    plain_engine = serving._Engine.run

    def request(engine: Any, asked: Any) -> Any:
        if asked.id != WARM:
            clocks.spent.clear()
            for moments in clocks.moments.values():
                moments.clear()
        return plain_engine(engine, asked)

    serving._Engine.run = request
    seen = serving.serve(rank, arguments)
    return {"seen": seen, "timers": {"spent": dict(clocks.spent), "moments": clocks.moments}}


def _head_of(module: Any) -> str | None:
    """The output head is the one linear layer that is as wide as a vocabulary."""
    return "output_head" if module.weight.shape[0] > MODEL_WIDTH else None


MODEL_WIDTH = 16_384
"""More rows than any other weight of a small-width model has on a lane."""


def components(ranks: Mapping[str, Any], steps: int) -> dict[str, float]:
    """Timers of figure 2 by its names, ms per decode step; of several lanes the slowest.

    The next stage's interval is that from complete logits at the tail to the end of the head's
    next stage: what a step waits for the result path, and the stage itself.
    """
    spent: dict[str, float] = defaultdict(float)
    for timed in ranks.values():
        for name, ns in timed["spent"].items():
            spent[name] = max(spent[name], ns / 1e6 / steps)
    moments = {name: timed["moments"] for name, timed in ranks.items()}
    logits = next(m["logits"] for name, m in moments.items() if m["logits"])
    stages = next(m["stage"] for name, m in moments.items() if m["stage"])
    intervals = [(b - a) / 1e6 for a, b in zip(logits, stages[1:], strict=False)]
    projects = spent["projection"] > 0
    found = {
        "output_head_ms": spent["output_head"],
        "socket_blocked_ms": spent["socket"],
        "next_stage_ms": fmean(intervals),
    }
    if projects:
        found |= {
            "projection_ms": spent["projection"],
            "token_d2h_ms": spent["to_host"],
            "token_h2d_ms": spent["to_device"],
        }
    else:
        found |= {
            "logits_d2h_ms": spent["to_host"],
            "h2d_allgather_sampling_ms": spent["all_gather"]
            + spent["sampling"]
            + spent["to_device"],
        }
    return found
