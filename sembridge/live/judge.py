"""The live run as a judge: a plan's ranks run it on value-revealing inputs.

It compares what demanded consumers really hold with the observation that the contract's
conservative reading gives. Like the executable reference it judges values, and says nothing of
how they came there.
"""

from __future__ import annotations

import atexit
from typing import Any

import numpy as np

from sembridge.live.backends import torch
from sembridge.live.executor import Observation, typed
from sembridge.live.faults import PlanFault
from sembridge.live.local import LocalWorld
from sembridge.obligations import Obligations
from sembridge.plan import VALUE, Plan
from sembridge.reference import (
    MAX_BYTES,
    Array,
    Outcome,
    expected_result,
    expected_value,
    revealing_inputs,
)

_worlds: dict[tuple[tuple[str, str], ...], LocalWorld] = {}
MAX_WORLDS = 4
MAX_RANKS = 16
"""Most endpoints that one process plays."""


def world_for(ob: Obligations, backend_name: str = "gloo") -> LocalWorld:
    """A world with the contract's endpoints; those used last are kept."""
    key = (("", backend_name), *ob.domain_of.items())
    world = _worlds.pop(key, None)
    if world is not None and world.broken:
        world.close()
        world = None
    if world is None:
        while len(_worlds) >= MAX_WORLDS:
            _worlds.pop(next(iter(_worlds))).close()
        world = LocalWorld(ob.domain_of, backend_name=backend_name)
    _worlds[key] = world
    return world


@atexit.register
def close_worlds() -> None:
    """Close the worlds that were kept."""
    while _worlds:
        _worlds.popitem()[1].close()


def as_tensor(ob: Obligations, flat: Array, device: Any = None) -> Any:
    """A flat array as the contract's value, on a device; bit for bit."""
    value = ob.contract.value
    raw = torch().from_numpy(np.ascontiguousarray(flat).view(np.uint8).copy())
    return typed(raw, value.dtype, value.shape).to(device)


def live_outcome(ob: Obligations, plan: Plan, *, variant: int = 0) -> Outcome:
    """Run a plan, legal or not, under obligations that passed validation.

    Raises:
        LiveError: the run could not be finished, which says nothing of the plan.
        BadInput: a dtype that torch does not have.
    """
    inputs = revealing_inputs(ob, variant)
    world = world_for(ob)
    values = {x: as_tensor(ob, flat, world.ranks[x].device) for x, flat in inputs.items()}
    try:
        observed = world.run(ob, plan, values)
    except PlanFault:
        return Outcome.FAULT
    same = all(as_expected(ob, inputs, c, observed[c]) for c in ob.demanded)
    return Outcome.EQUAL if same else Outcome.DIFFERS


def as_expected(
    ob: Obligations, inputs: dict[str, Array], consumer: str, seen: Observation
) -> bool:
    """Whether a consumer holds, bit for bit, every surface that it is to observe."""
    for surface in ob.observed:
        if surface == VALUE:
            wanted = expected_value(ob, inputs, consumer)
            held = None if seen.value is None else seen.value.cpu().contiguous()
            got = None if held is None else held.reshape(-1).view(torch().uint8).numpy().tobytes()
        else:
            wanted = expected_result(ob, inputs, consumer)
            got = None if seen.result is None else seen.result.tobytes()
            if seen.result is not None and seen.result.dtype != wanted.dtype:
                return False
        if got != wanted.tobytes():
            return False
    return True


def runnable(ob: Obligations) -> bool:
    """Whether a run stays within what one machine should hold, and torch has the dtype."""
    return (
        len(ob.domain_of) <= MAX_RANKS
        and sum(ob.sizes.values()) * len(ob.domain_of) <= MAX_BYTES
        and hasattr(torch(), ob.contract.value.dtype)
    )
