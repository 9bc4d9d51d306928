"""The live experiments (Table 3, figures 2 to 4, forward, owner, replicas, link, selector)."""

from __future__ import annotations

from experiments.registry import Result, Settings, experiment

NO_ENGINE = "the live engine is not part of this release"

EXPERIMENTS: dict[str, str] = {
    "link": "The link that the live experiments use: rate and round trip (§6.1)",
    "table3": "The MLP slice across two domains against float32 (Table 3)",
    "switching": "Three kinds of request through one pair of engines (§6.3)",
    "figure2": "Component timers of full logits and projection, instrumented (figure 2)",
    "figure3": "Projection placement: traffic and restart-paired throughput (figure 3)",
    "figure4": "Host traffic against replica multiplicity (figure 4)",
    "forward": "Shard transfer against representative transfer (§6.2)",
    "owner": "Owner's token against projected tokens (§6.2)",
    "replicas": "Mapped copies against representative broadcast (§6.5)",
}


def _register(name: str, title: str) -> None:
    @experiment(name, title, quick=False)
    def run(settings: Settings) -> Result:  # pyright: ignore[reportUnusedFunction]
        return Result(name=name, how="not run", not_run=NO_ENGINE)


for _name, _title in EXPERIMENTS.items():
    _register(_name, _title)
