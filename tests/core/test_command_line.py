"""The command line as a whole: what it imports, and how it says that it was misused."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sembridge.cli import MODULES, _commands, _modules


def test_every_shortcut_leads_to_its_command():
    for command, module in MODULES.items():
        assert command in _commands(module)
    assert _commands(*_modules()).keys() >= MODULES.keys()


def test_a_command_imports_what_it_needs_and_no_more():
    heavy = (
        "{'numpy', 'pandas', 'matplotlib', 'z3', 'joblib', 'networkx', 'scipy', 'rich.progress'}"
    )
    code = (
        "import sys; from sembridge.cli import _commands; _commands('plans'); "
        f"sys.exit(' '.join({heavy} & sys.modules.keys()) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("chek",), "No such command 'chek' (see sembridge --help)"),
        (("check",), "Missing argument 'CONTRACT' (see sembridge check --help)"),
        (("lower", "x", "--policy", "best"), "'best' is not one of"),
        (("show", "x", "y", "--fast"), "No such option: --fast"),
        (("lower", "x", "-o", ""), "Invalid value for '--output' / '-o'"),
        (("judges", "--random", "-1"), "greater than or equal to 0"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(sembridge, arguments, says):
    ran = sembridge(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("sembridge: error: ")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_without_a_command_the_commands_are_listed(sembridge):
    ran = sembridge()
    assert ran.code == 2
    assert "certify" in ran.out + ran.err


def test_judges_say_which_pairs_they_are_given(sembridge):
    ran = sembridge("judges", "--random", "2", "--judge", "checker", "--judge", "reference")
    assert ran.code == 0
    assert ran.err == "pairs from random\n"


@pytest.mark.parametrize(("columns", "most"), [(None, 100), ("60", 60)])
def test_piped_tables_fit(columns, most, request):
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    config = request.config.rootpath / "tests/data/configs/qwen3-14b.json"
    code = "from sembridge.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "edges", "--model-config", config, "--tp", "4", "--quiet"],
        env=environment | ({"COLUMNS": columns} if columns else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    drawn = [line for line in ran.stdout.splitlines() if line[0] in "┏┃┡│└"]
    assert drawn
    assert max(map(len, drawn)) <= most
