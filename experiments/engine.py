"""Where the live harness and an engine are found, if they are there."""

from __future__ import annotations

from importlib.util import find_spec

from experiments.pairs import Engine

LIVE = "the extra `live` is not installed"
NO_ENGINE = "no live engine in this release"


def live_installed() -> bool:
    """Whether plans can be run between two live domains here."""
    return find_spec("torch") is not None and find_spec("sembridge.live") is not None


def engine() -> Engine | None:
    """The engine that runs a model between two domains, or None where there is none."""
    return None
