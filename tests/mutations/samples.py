"""Campaigns over a part of the subjects, run once for all tests that look at them."""

from __future__ import annotations

import re
from functools import cache

from experiments.mutations import subjects
from mutations.campaign import Judged, Options, run
from mutations.subjects import Subject

CHOSEN = re.compile(
    r"\w+\.tp2\.d2\.v0|replica\.tp4\.(d1\.v0|d2\.v2)|[\w-]+\.\w+\.tp3\.spare"
    r"|(partial(-owner)?|replica)\.\w+\.tp2\.home|replica(te)?\.(complete|tokens)\.tp4\.d3"
)


@cache
def some_subjects() -> tuple[Subject, ...]:
    named = [s for source in ("matrix", "family") for s in subjects(source).values()]
    return tuple(s for s in named if CHOSEN.fullmatch(s.contract.name))


@cache
def some_campaign() -> tuple[Judged, ...]:
    return tuple(run(some_subjects(), Options(), engine="serial"))
