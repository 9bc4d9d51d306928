"""Writes tests/data/graphs/block.pt2: the graph of one tensor-parallel block on two ranks.

An archive of torch.export.save without its weights and stack traces: ``python -m
tests.graphs.make_archive`` under the pinned torch makes the same bytes again.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import torch

from sembridge.graphs.torch_graphs import as_rank
from tests.graphs import modules

TARGET = Path(__file__).parents[1] / "data/graphs/block.pt2"


def archive(exported: Any) -> bytes:
    """The graph alone, as torch writes it."""
    whole, graph = io.BytesIO(), io.BytesIO()
    torch.export.save(exported, whole)
    with zipfile.ZipFile(whole) as read, zipfile.ZipFile(graph, "w", zipfile.ZIP_DEFLATED) as write:
        name = next(n for n in read.namelist() if n.endswith("models/model.json"))
        document = json.loads(read.read(name))
        for node in document["graph_module"]["graph"]["nodes"]:
            node["metadata"].pop("stack_trace", None)
        entry = zipfile.ZipInfo("block/models/model.json", (1980, 1, 1, 0, 0, 0))
        write.writestr(entry, json.dumps(document), zipfile.ZIP_DEFLATED)
    return graph.getvalue()


if __name__ == "__main__":
    with as_rank(0, 2):
        block = torch.export.export(modules.Block(2), modules.inputs("block"))
    TARGET.write_bytes(archive(block))
