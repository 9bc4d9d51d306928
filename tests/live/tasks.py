"""What ranks do in tests of the launcher; imported by host processes."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from sembridge.live.executor import Rank, lanes_of
from sembridge.live.judge import as_expected, as_tensor
from sembridge.lowering import lower
from sembridge.obligations import resolve_valid
from sembridge.reference import revealing_inputs
from sembridge.surfaces import Tokens
from tests.core.build import contract


def owner_tokens(rank: Rank, arguments: dict[str, Any]) -> Any:
    """Run one owner-scoped token plan over and over; whether this rank saw what it should."""
    ob = resolve_valid(contract(2, shape=(2, 50), owner=("p1",), surface=Tokens()))
    chosen = lower(ob.contract)
    names = {
        x: name.replace("h/", "head/").replace("t/", "tail/") for x, name in lanes_of(ob).items()
    }
    right = True
    for n in range(arguments["runs"]):
        if (rank.name, n) == (arguments.get("victim"), arguments.get("at", 0)):
            _suffer(arguments["fate"])
        inputs = revealing_inputs(ob, n)
        mine = next(x for x, name in names.items() if name == rank.name)
        value = as_tensor(ob, inputs[mine]) if mine in inputs else None
        seen = rank.run(ob, chosen, names=names, value=value)
        if mine in ob.demanded:
            right &= as_expected(ob, inputs, mine, seen[mine])
        rank.emit({"run": n})
    sent = {str(edge): f.framed for edge, f in rank.sent.items()}
    return {"right": right, "sent": sent, "lanes": rank.lanes, "lane": rank.lane}


def _suffer(fate: str) -> None:
    match fate:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            os._exit(3)
        case "fails":
            raise ValueError("no such luck")
        case "sleeps":
            time.sleep(60)
        case _:
            raise AssertionError(fate)


def talk(rank: Rank, arguments: dict[str, Any]) -> Any:
    """Lane 0 of each domain exchanges control messages; the others say nothing."""
    if rank.lane:
        return None
    peer = "tail/0" if rank.domain == "head" else "head/0"
    rank.tell(peer, f"from {rank.name}".encode(), epoch=3)
    return rank.hear(peer, 11, epoch=3).decode()


def own_group(rank: Rank, arguments: dict[str, Any]) -> Any:
    """A default process group of the domain, as a tensor-parallel engine makes it."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", store=rank.store, rank=rank.lane, world_size=rank.lanes)
    mine = torch.tensor([rank.lane + 1.0])
    dist.all_reduce(mine)
    dist.destroy_process_group()
    return mine.item()
