"""Strict, bounded, all-or-nothing files: one clear error that names the field."""

from __future__ import annotations

import copy
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sembridge import io
from sembridge.errors import BadInput

CASE = Path(__file__).parent.parent / "cases" / "result-owner-token"
CONTRACT = json.loads((CASE / "contract.json").read_text())
PLAN = json.loads((CASE / "plan.json").read_text())
MISSING = object()


def edited(document, path, value):
    """The document with one field replaced (or removed)."""
    document = copy.deepcopy(document)
    node = document
    for key in path[:-1]:
        node = node[key]
    if value is MISSING:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return json.dumps(document).encode()


CONTRACTS = [
    (("format",), "sembridge.contract/2", "$.format", "invalid value"),
    (("format",), MISSING, "$.format", "missing"),
    (("name",), 7, "$.name", "expected `str`"),
    (("name",), "", "$.name", "length >= 1"),
    (("surprise",), 1, "$.surprise", "unknown key"),
    (("producers", 0, "domain"), MISSING, "$.producers[0].domain", "missing"),
    (("producers", 1, "domain"), "x", "$.producers[1].domain", "no such domain 'x'"),
    (("producers", 1, "id"), "p0", "$.producers[1].id", "duplicate id 'p0'"),
    (("consumers", 1, "id"), "p0", "$.consumers[1].id", "duplicate id 'p0'"),
    (("consumers", 2, "source"), "c0", "$.consumers[2].source", "no such producer 'c0'"),
    (("consumers", 0, "demanded"), 1, "$.consumers[0].demanded", "expected `bool`"),
    (("consumers", 0, "extra"), 1, "$.consumers[0].extra", "unknown key"),
    (("domains", "ascend", "stack"), "abacus", "$.domains[...].stack", "invalid enum value"),
    (("value", "dtype"), "float31", "$.value.dtype", "no such dtype"),
    (("value", "shape"), [2, -1], "$.value.shape[1]", ">= 0"),
    (("value", "shape"), [2, 1.5], "$.value.shape[1]", "expected `int`"),
    (("value", "shape"), [2**40, 2**40], "$.value.shape", "2**62"),
    (("value", "shape"), [1] * 99, "$.value.shape", "length <= 16"),
    (("value", "valid_last"), 200065, "$.value.valid_last", "200065"),
    (("placement",), {"type": "shard", "dim": 2}, "$.placement.dim", "no axis"),
    (("placement",), {"type": "scatter"}, "$.placement.type", "invalid value"),
    (("placement",), {"type": "partial", "op": "mean"}, "$.placement.op", "invalid enum value"),
    (("facts", "owner", "value"), ["p9"], "$.facts.owner.value[0]", "no such producer 'p9'"),
    (("facts", "owner", "origin"), "rumour", "$.facts.owner.origin", "invalid enum value"),
    (("facts", "owner", "origin"), MISSING, "$.facts.owner.origin", "missing"),
    (
        ("facts", "replica_classes"),
        {"value": [["p0", "p1"], ["p1"]], "origin": "graph"},
        "$.facts.replica_classes.value[1]",
        "in two classes",
    ),
    (
        ("facts", "replica_classes"),
        {"value": [["p0"], ["c1"]], "origin": "graph"},
        "$.facts.replica_classes.value[1][0]",
        "no such producer 'c1'",
    ),
    (
        ("facts", "reduction"),
        {"value": {"op": "sum", "sources": ["p0", "p7"]}, "origin": "graph"},
        "$.facts.reduction.value.sources[1]",
        "no such producer",
    ),
    (("facts", "surface", "value", "type"), "soup", "$.facts.surface.value.type", "invalid value"),
    (
        ("facts", "surface", "value", "projection"),
        "argmin",
        "$.facts.surface.value.projection",
        "invalid enum value",
    ),
    (
        ("facts", "surface", "value", "output_dtype"),
        "int31",
        "$.facts.surface.value.output_dtype",
        "no such dtype",
    ),
    (("tag", "epoch"), -1, "$.tag.epoch", ">= 0"),
    (("tag", "epoch"), MISSING, "$.tag.epoch", "missing"),
]
PLANS = [
    (("format",), "sembridge.plan/9", "$.format", "invalid value"),
    (("ops", 0, "op"), "teleport", "$.ops[0].op", "invalid value"),
    (("ops", 1, "dst"), MISSING, "$.ops[1].dst", "missing"),
    (("ops", 1, "colour"), "red", "$.ops[1].colour", "unknown key"),
    (("ops", 1, "part"), {"index": 4, "of": 4}, "$.ops[1].part.index", "does not exist"),
    (("ops", 1, "part"), {"index": 0, "of": 0}, "$.ops[1].part.of", ">= 1"),
    (("ops", 2, "dsts"), "c1", "$.ops[2].dsts", "expected `array`"),
    (("contract",), MISSING, "$.contract", "missing"),
]


@pytest.mark.parametrize(("path", "value", "at", "reason"), CONTRACTS)
def test_contract_errors_name_the_field(path, value, at, reason):
    with pytest.raises(BadInput) as caught:
        io.decode_contract(edited(CONTRACT, path, value))
    assert caught.value.path == at
    assert reason in caught.value.message


@pytest.mark.parametrize(("path", "value", "at", "reason"), PLANS)
def test_plan_errors_name_the_field(path, value, at, reason):
    with pytest.raises(BadInput) as caught:
        io.decode_plan(edited(PLAN, path, value))
    assert caught.value.path == at
    assert reason in caught.value.message


HOSTILE = {
    "deep": b"[" * 10_000 + b"]" * 10_000,
    "deep objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "nan": json.dumps(CONTRACT).replace("200064", "NaN").encode(),
    "infinity": json.dumps(CONTRACT).replace("200064", "Infinity").encode(),
    "huge number": json.dumps(CONTRACT).replace("200064", "9" * 5000).encode(),
    "large shape": json.dumps(CONTRACT).replace("200064", "1" + "0" * 30).encode(),
    "repeated key": json.dumps(CONTRACT).replace('"name"', '"name": "x", "name"', 1).encode(),
    "not utf-8": b'{"format": "\xff\xfe"}',
    "truncated": json.dumps(CONTRACT).encode()[:-2],
    "two documents": json.dumps(CONTRACT).encode() * 2,
    "empty": b"",
    "a million duplicate ids": json.dumps(CONTRACT)
    .replace('"producers": [', '"producers": [' + '{"id": "p0", "domain": "ascend"}, ' * 1_000_000)
    .encode(),
    "duplicate ids under the limits": json.dumps(CONTRACT)
    .replace('"producers": [', '"producers": [' + '{"id": "p0", "domain": "ascend"}, ' * 200_000)
    .encode(),
    "a long shape": json.dumps(CONTRACT).replace("200064", "1, " * 5_000_000 + "1").encode(),
    "many strings": json.dumps(CONTRACT).replace('["p3"]', json.dumps(["p3"] * 3_000_000)).encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_one_error_and_exit_2(name, tmp_path, sembridge):
    path = tmp_path / "contract.json"
    path.write_bytes(HOSTILE[name])
    output = tmp_path / "plan.json"
    ran = sembridge("lower", path, "-o", output)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert str(path) in ran.err
    assert len(ran.err) < 1000
    assert not output.exists()


def test_a_missing_file_and_a_folder(tmp_path, sembridge):
    assert sembridge("check", tmp_path / "none.json", CASE / "plan.json").code == 2
    ran = sembridge("check", tmp_path, CASE / "plan.json")
    assert ran.code == 2
    assert "cannot read" in ran.err


def test_write_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.json"
    io.write(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    with pytest.raises(TypeError):
        io.write(path, "not bytes")
    assert path.read_bytes() == b"one"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]
    with pytest.raises(BadInput):
        io.write(tmp_path / "no" / "out.json", b"x")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_standard_input(monkeypatch, sembridge):
    read, write = os.pipe()
    os.write(write, json.dumps(CONTRACT).encode())
    os.close(write)
    saved = os.dup(0)
    os.dup2(read, 0)
    try:
        ran = sembridge("lower", "-")
    finally:
        os.dup2(saved, 0)
        os.close(read)
        os.close(saved)
    assert ran.code == 0
    assert json.loads(ran.out)["contract"] == CONTRACT["name"]


def test_output_replaces_files_and_nothing_else(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_bytes(b"old")
    link.symlink_to(real)
    io.write(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    io.write(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert not (tmp_path / "pipe").is_file()


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "\x00", "x" * 257])
def test_names_that_cannot_be_printed_are_bad_input(name):
    with pytest.raises(BadInput) as caught:
        io.decode_contract(edited(CONTRACT, ("producers", 0, "id"), name))
    assert caught.value.path == "$.producers[0].id"
    with pytest.raises(BadInput) as caught:
        io.decode_contract(edited(CONTRACT, (f"{name}!\n",), 1))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("root", [b"[]", b"1", b'"x"', b"null"])
def test_a_document_is_an_object(root):
    with pytest.raises(BadInput, match="expected an object"):
        io.decode_plan(root)


def test_a_repeated_key_is_found_among_many():
    many = {f"k{i}": 1 for i in range(100_000)}
    text = json.dumps(many)[:-1] + ', "k99999": 1}'
    with pytest.raises(BadInput, match="k99999"):
        io.decode_plan(text.encode())
    with pytest.raises(BadInput, match="keys in one object"):
        io.decode_plan(json.dumps({f"k{i}": 1 for i in range(300_000)}).encode())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"temperature": 1e999}', r"\$\.temperature"),
        ('{"a": [{"b": [1, -1e999]}]}', r"\$\.a\[0\]\.b\[1\]"),
        ('{"bell\\u0007": 1e999}', r"\$\.'bell\\x07'"),
    ],
)
def test_a_number_out_of_range_is_named(text, path):
    with pytest.raises(BadInput, match=f"^{path}: number out of range$"):
        io.decode(text.encode(), dict[str, object])


def run(*arguments, stdout):
    code = "from sembridge.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], stdout=stdout, stderr=subprocess.PIPE, check=False
    )


def test_output_that_nobody_reads_or_that_does_not_fit():
    check = ("check", str(CASE / "contract.json"), str(CASE / "plan.json"))
    read, write = os.pipe()
    os.close(read)
    closed = run(*check, stdout=write)
    os.close(write)
    assert (closed.returncode, closed.stderr) == (141, b"")
    with open("/dev/full", "wb") as full:
        left = run(*check, stdout=full)
    assert left.returncode == 2
    assert left.stderr.startswith(b"sembridge: error: cannot write")
    assert left.stderr.count(b"\n") == 1
