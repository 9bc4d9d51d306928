"""A model cut in two computes what the unsplit one does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from sembridge.errors import BadInput
from sembridge.live import parts
from sembridge.live.parts import Head, Tail, greedy, load, save, torch

ROOT = Path(__file__).parents[2]
SMALL = ["qwen3", "qwen3-moe", "minimax-m2"]
PROMPTS = [[11, 7, 5, 3, 2], [1, 2, 3, 4, 5]]


@pytest.fixture(scope="module", params=SMALL)
def saved(request, tmp_path_factory):
    """An unsplit model, and the folder with its weights; a small vocabulary keeps it quick."""
    folder = tmp_path_factory.mktemp(request.param)
    model = load(request.param, vocab_size=1003)
    save(model, folder)
    return model, folder


def split(folder, cut, prompts, steps):
    """Greedy decoding through head and tail, without any transport."""
    head, tail = Head(folder, cut), Tail(folder, cut)
    ids, rows, logits = parts.batch(prompts), len(prompts), []
    for _ in range(steps):
        logits.append(tail.step(head.step(ids), rows))
        ids = logits[-1].argmax(dim=-1)[:, None]
    return logits


@pytest.mark.parametrize("cut", [1, 3])
def test_the_split_models_logits_are_the_unsplit_models_bit_for_bit(saved, cut):
    model, folder = saved
    whole = greedy(model, PROMPTS, 4)
    assert all(
        torch.equal(ours, theirs)
        for ours, theirs in zip(split(folder, cut, PROMPTS, 4), whole.logits, strict=True)
    )


def test_a_reset_part_begins_anew(saved):
    _, folder = saved
    head, ids = Head(folder, 2), parts.batch(PROMPTS)
    first = head.step(ids)
    assert not torch.equal(head.step(ids).hidden, first.hidden)
    head.reset()
    assert torch.equal(head.step(ids).hidden, first.hidden)


def test_what_the_model_cannot_do_is_said(saved):
    _, folder = saved
    with pytest.raises(BadInput, match="one length"):
        parts.batch([[1], [1, 2]])
    with pytest.raises(BadInput, match="layers 4 to 4"):
        Tail(folder, 4)
    with pytest.raises(BadInput, match=r"intermediate_size: .* do not divide among 3 lanes"):
        parts.check_lanes(parts.read_config(folder), 3)
    with pytest.raises(BadInput, match="no model 'gpt5'"):
        load("gpt5")


LANES = """
import json, os, sys, torch
import torch.distributed as dist
from pathlib import Path
from torch.distributed.device_mesh import init_device_mesh
from sembridge.live.parts import Head, Tail, batch

def decode(folder, mesh, prompts, steps):
    head, tail = Head(Path(folder), 2, mesh), Tail(Path(folder), 2, mesh)
    ids, tokens, largest = batch(prompts), [], []
    for _ in range(steps):
        logits = tail.step(head.step(ids), len(prompts))
        ids = logits.argmax(-1)[:, None]
        tokens.append(ids[:, 0].tolist())
        largest.append(logits.amax(-1).tolist())
    held = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel()
               for p in tail.model.parameters())
    return {"tokens": tokens, "largest": largest, "parameters": held}

folders, lanes, place, prompts, steps = json.loads(sys.argv[1])
torch.set_num_threads(1)
children = []
for lane in range(lanes):
    if not (child := os.fork()):
        store = dist.FileStore(place + "/store", lanes)
        dist.init_process_group("gloo", store=store, rank=lane, world_size=lanes)
        mesh = init_device_mesh("cpu", (lanes,))
        said = {name: decode(folder, mesh, prompts, steps) for name, folder in folders.items()}
        Path(f"{place}/{lane}.json").write_text(json.dumps(said))
        dist.barrier()
        os._exit(0)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def test_tensor_parallel_lanes_decode_what_the_unsplit_model_does(tmp_path):
    folders, whole, full = {}, {}, {}
    for name in SMALL:
        folders[name] = tmp_path / name
        folders[name].mkdir()
        model = load(name, vocab_size=1003)
        save(model, folders[name])
        whole[name] = greedy(model, PROMPTS, 3)
        tail = Tail(folders[name], 2)
        full[name] = sum(p.numel() for p in tail.model.parameters())
    order = {name: str(folder) for name, folder in folders.items()}
    orders = json.dumps([order, 2, str(tmp_path), PROMPTS, 3])
    subprocess.run([sys.executable, "-c", LANES, orders], cwd=ROOT, check=True, timeout=180)
    for lane in range(2):
        said = json.loads((tmp_path / f"{lane}.json").read_text())
        for name in SMALL:
            tokens = [list(step) for step in zip(*whole[name].tokens, strict=True)]
            assert said[name]["tokens"] == tokens
            for ours, theirs in zip(said[name]["largest"], whole[name].logits, strict=True):
                assert torch.allclose(torch.tensor(ours), theirs.amax(-1), atol=1e-4)
            # All but the replicated router, norms and gathered attention is halved.
            assert said[name]["parameters"] < 0.62 * full[name]
