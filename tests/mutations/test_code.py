"""Trials of code mutants: only a failing test is a kill."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mutations.code import EXPLAINED, MODULES, CodeMutant, code_mutants, explanation, path_of

ROOT = Path(__file__).parents[2]

SOURCE = "def double(n):\n    return n + n\n"
TEST = "from sample import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
MUTANTS = {
    "killed": "def double(n):\n    return n - n\n",
    "survived": "def double(n):\n    return n * n\n",
    "did not end": "def double(n):\n    while True:\n        pass\n",
    "crashed": "import os\n\n\ndef double(n):\n    os._exit(66)\n",
    "cannot be imported": "def double(n):\n    return n + n\n\n\ndouble.none\n",
}
SCRIPT = """
import json, sys
from pathlib import Path
import sample
from mutations import code

code.PRELOADED, code.PROJECT = ("pytest",), ("sample", "test_sample")
mutants = [
    code.CodeMutant(id=fate, module="sample", line=2, before="", after="", source=source)
    for fate, source in json.loads(sys.argv[1]).items()
]
found = code.judge_code(mutants, Path.cwd(), ["test_sample.py"], jobs=2, budget=1)
print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="trials are forked")
def test_each_fate(tmp_path):
    (tmp_path / "sample.py").write_text(SOURCE)
    (tmp_path / "test_sample.py").write_text(TEST)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(MUTANTS)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout) == {fate: fate for fate in MUTANTS}


def test_mutated_modules_exist():
    assert all(path_of(module, ROOT).is_file() for module in MODULES)


def test_mutants_differ_in_one_line_and_leave_annotations_alone(tmp_path):
    pytest.importorskip("cosmic_ray", reason="cosmic-ray is not installed")
    source = "def at_most(a: int | None, b: int) -> bool | None:\n    return a is None or a < b\n"
    (tmp_path / "sample.py").write_text(source)
    mutants = list(code_mutants("sample", tmp_path))
    assert len({m.id for m in mutants}) == len(mutants) > 5
    for mutant in mutants:
        changed = zip(source.splitlines(), mutant.source.splitlines(), strict=True)
        assert [i for i, (a, b) in enumerate(changed, 1) if a != b] == [mutant.line] == [2]


def test_explanations_match_lines_of_the_code():
    """An explanation whose line is gone explains nothing."""
    lines = {
        line.strip()
        for module in MODULES
        for line in path_of(module, ROOT).read_text().splitlines()
    }

    unused = [b for b, _, _ in EXPLAINED if not any(re.fullmatch(b, line) for line in lines)]
    assert unused == []


def test_a_change_that_no_entry_names_is_not_explained():
    mutant = CodeMutant(id="", module="", line=1, before="if a:", after="if not a:", source="")
    assert explanation(mutant) == ""
