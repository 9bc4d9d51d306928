"""The documents say what the program does: generated pages, links, commands, code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from docs.generate import PAGES, REFERENCE

ROOT = Path(__file__).parent.parent
PAGES_WRITTEN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("name", PAGES)
def test_generated_reference_is_current(name):
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("page", PAGES_WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def console_blocks(page):
    return re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(
    "page", [p for p in PAGES_WRITTEN if "```console" in p.read_text()], ids=lambda p: p.name
)
def test_console_blocks_print_what_they_show(page, sembridge, tmp_path, monkeypatch):
    """Lines after ``$ sembridge`` are its output; ``...`` stands for any lines, none for all.

    Followed from the root of a checkout, a page leaves nothing outside ``scratch/``.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("docs", "experiments", "results", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for block in console_blocks(page):
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            words = shlex.split(command)
            if words[0] != "sembridge":
                if words[0] == "mkdir":
                    (tmp_path / words[-1]).mkdir(parents=True, exist_ok=True)
                continue
            ran = sembridge(*words[1:])
            assert ran.code in (0, 1, 2 if "sembridge: error" in shown else 0), ran.err
            if not shown:
                continue
            pattern = ".*".join(re.escape(piece) for piece in shown.split("...\n"))
            printed = "\n".join(line.rstrip() for line in (ran.out + ran.err).splitlines()) + "\n"
            assert re.fullmatch(pattern, printed, re.DOTALL), (command, printed)
    left = {path.name for path in tmp_path.iterdir() if not path.is_symlink()}
    assert left <= {"scratch"}


def no_task(number):
    return number


GIVEN = {"cluster.md": {"tasks": [1, 2], "work": no_task, "path": None}}
"""What the Python code of a page takes as given."""


@pytest.mark.parametrize(
    "page", [p for p in PAGES_WRITTEN if "```python" in p.read_text()], ids=lambda p: p.name
)
def test_python_blocks_run(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("experiments", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    if page.name == "link.md":
        needs_two_hosts()
    names = torch_names() if page.name == "graphs.md" else dict(GIVEN.get(page.name, {}))
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


def needs_two_hosts():
    """What the page on links makes: ranks, and network namespaces."""
    pytest.importorskip("torch", reason="torch is not installed (make torch)")
    from sembridge.live.netns import absent

    if (reason := absent()) is not None:
        pytest.skip(reason)


def torch_names():
    """A tensor-parallel module, its input, and the ranks of the page's mesh file."""
    pytest.importorskip("torch", reason="torch is not installed (make torch)")
    from sembridge.cli.graphs import read_mesh
    from tests.graphs import modules

    (x,) = modules.inputs("block")
    return {"Block": modules.Block, "x": x, "mesh": read_mesh(ROOT / "tests/data/graphs/mesh.json")}
