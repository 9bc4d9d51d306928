"""Mutants of the checker's own code: cosmic-ray's operators, the test suite as judge.

Each mutant is tried in a process forked from one that has the third-party packages loaded and
the project not, so that a trial costs the tests and little else. Only a failing test is a kill: a
mutant that cannot be imported, hangs, or takes the test run down is a class of its own (tools
that count crashes as kills report a better score than their tests earned).
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.machinery
import importlib.util
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

MODULES = (
    "sembridge.check",
    "sembridge.rules",
    "sembridge.state",
    "sembridge.guards",
    "sembridge.obligations",
    "sembridge.lowering",
)
"""Checker, validation and lowerer."""

QUICK = (
    "tests/mutations/test_code_survivors.py",
    "tests/core/test_rules.py",
    "tests/core/test_lowering.py",
    "tests/core/test_obligations.py",
    "tests/surfaces/test_contracts.py",
)
"""Tests that every mutant is tried on first, in this order."""

THOROUGH = (
    "tests/oracle/test_oracle.py::test_lowered_plan_is_optimal_and_certified_on_the_family",
    "tests/oracle/test_oracle.py::test_one_broadcast_serves_a_domain_that_an_assembled_whole_reaches",
    "tests/core/test_cases.py",
    "tests/core/test_reference.py",
    "tests/core/test_properties.py",
)
"""Tests for what the quick ones let through."""

PRELOADED = (
    "hypothesis",
    "joblib",
    "matplotlib.pyplot",
    "ml_dtypes",
    "networkx",
    "numpy",
    "pandas",
    "pytest",
    "rich.progress",
    "typer",
    "z3",
)
PROJECT = ("experiments", "mutations", "oracle", "paper_figs", "sembridge", "tests")
ADDRESS_SPACE = 8 * 2**30


class Fate(StrEnum):
    """What became of a code mutant; only the first is a kill."""

    KILLED = "killed"
    SURVIVED = "survived"
    HUNG = "did not end"
    CRASHED = "crashed"
    UNIMPORTABLE = "cannot be imported"


class CodeMutant(Struct, frozen=True, kw_only=True):
    """One change of one line: ``source`` is the whole module as mutated."""

    id: str
    module: str
    line: int
    before: str
    after: str
    source: str


EXPLAINED: tuple[tuple[str, str, str], ...] = (
    (
        r".*strict=True.*",
        r".*strict=False.*",
        "the two have one length by construction; `strict` asserts it",
    ),
    (
        r"if len\(held\) == len\(members\):",
        r".*>=.*",
        "the holders are among the members, never more",
    ),
    (
        r"(if|for x in members if) len\((receivers|held)\) < len\((dsts|members)\).*",
        r".* (<=|!=|is not) .*",
        "never more than the listed; where all are there, the branch finds nothing to say",
    ),
    (
        r"return \"\{\" .* len\(ids\) > len\(shown\).*",
        r".*(!=|is not) len\(shown\).*",
        "what is shown is the ids or four of them, never more",
    ),
    (
        r"and not reassembled\(ob\.replicate, len\(sources\) > 1\)",
        r".*!= 1\)",
        "no sources at all are within any class, so the next condition admits them",
    ),
    (
        r"if sources is not reduced and not exactly\(sources, reduced\):",
        r"if sources (<|<=|!=) reduced .*",
        "R is all producers and sources are producers: other sources are fewer",
    ),
    (
        r"if not exactly\(frozenset\(sources\), ob\.reduced\) or len\(sources\) != len.*",
        r".* len\(sources\) > len\(ob\.reduced\):",
        "a list is no shorter than its set, which is R here",
    ),
    (
        r"if ob\.owners is None and ob\.reduced is None:",
        r"if ob\.owners is None or ob\.reduced is None:",
        "consumers are only grouped more finely, and each group judged as before",
    ),
    (
        r"if len\(found\) > before:",
        r"if len\(found\) (>=|!=|is not) before:",
        "found only grows; judging every consumer where none was refused finds nothing more",
    ),
    (
        r"for piece in held\.pieces\[max\(at - 1, 0\) : at \+ 1\]:",
        r".*(at - 2|at \+ 2|at % 1|at >> 1).*",
        "looks at more pieces around the place than can overlap there",
    ),
    (
        r"if start == stop:",
        r"if start (>|>=|is) stop:",
        "the one piece without elements is a whole of none, and passing over it changes nothing",
    ),
    (
        r"return reached == elements|if held\.size == self\.ob\.elements:",
        r".*>=.*",
        "disjoint slices hold no more elements than there are",
    ),
    (
        r"if not piece\[0\] <= start < piece\[1\]:",
        r".*start (<=|!=|is not) piece\[1\]:",
        "where the piece ends before the slice starts, the next piece starts later, and refuses",
    ),
    (r"if piece\[0\] < piece\[1\]:", r".*!=.*", "a span does not end before it starts"),
    (
        r"continue",
        r"break",
        "a whole of no elements is all there is, or the rest is refused as before",
    ),
    (r"class Holding\(Struct, gc=False\):", r".*gc=True.*", "only the collector sees it"),
    (r"@lru_cache\(maxsize=1024\)|", r"@lru_cache.*|def .*", "a cache of a pure function"),
    (
        r"if held\.whole or span is None or span\[0\] == span\[1\]:",
        r".*>=.*",
        "a span does not end before it starts",
    ),
    (r"if part is None or part\.of == 1:", r".*<= 1:", "a value is cut into one slice at least"),
    (
        r"if at < 0 or at >= len\(self\.pieces\):",
        r".*at == len.*",
        "the place moves by one, from a place among the pieces",
    ),
    (
        r"ob\.(replicate|partial) = type\(placement\) is (Replicate|Partial)",
        r".* == .*",
        "a type equals itself alone",
    ),
    (r"if columns == 0:", r"if columns <= 0:", "no axis has fewer columns than none"),
    (
        r"if len\(class_of\) != listed:",
        r".* < listed:",
        "no more producers are in classes than are listed",
    ),
    (
        r"if ob\.reduced != ob\.producer_set\.keys\(\) or len\(fact\.value\.sources\).*",
        r"if ob\.reduced < .*|.* > len\(ob\.reduced\):",
        "the sources are producers, and a list is no shorter than its set",
    ),
    (
        r"vocabulary = projected\.vocabulary or 0",
        r".* or (1|-1)",
        "a projection of shards has a vocabulary, of one column at least",
    ),
    (
        r"return isinstance\(placement, Shard\) and placement\.dim % rank == rank - 1",
        r".*>=.*",
        "a remainder is at most the divisor less one",
    ),
    (
        r".*(ob\.completes|carried) == VALUE.*",
        r".*(ob\.completes|carried) (is|>=) VALUE.*",
        "surfaces go by the names in the code, one object each, and `value` is the last of them",
    ),
    (
        r".*(ob\.completes|carried) != VALUE.*",
        r".*(ob\.completes|carried) (is not|<) VALUE.*",
        "surfaces go by the names in the code, one object each, and `value` is the last of them",
    ),
    (
        r"if carried == VALUE or not ob\.informs:",
        r"if carried > VALUE or .*",
        "where the value is what crosses, assembling moves fewer bytes, parameters or not",
    ),
    (
        r"pool = ob\.producers if len\(key\) == len\(ob\.producers\) else .*",
        r".*len\(key\) (>|>=|is) .*",
        "a class of all the producers, in stable order, is the list of them",
    ),
    (
        r"if len\(receivers\) > 1:"
        r"|sliced = \[members for members in .* if len\(members\) > 1\]"
        r"|mixed = .* if len\(\{ob\.mapped\[c\] for c in members\}\) > 1\]",
        r".*!= 1.*",
        "there is one at least: nobody is listed without somebody to serve",
    ),
    (
        r"here = min\(mixed, key=.*",
        r".*!= len\(lanes\[d\]\).*",
        "a domain has no fewer consumers than lanes",
    ),
    (
        r"onward \+= \[.* for d in lanes if d != here\]",
        r".*is not here\]",
        "`here` is one of these very objects",
    ),
    (
        r"if policy\.materialize == \"always\":",
        r".*<=.*",
        "`always` is the first of the three words",
    ),
    (
        r"if report\.verdict is not Verdict\.LEGAL:",
        r".*report\.verdict (<|!=) Verdict\.LEGAL:",
        "the checker says legal or illegal",
    ),
    (
        r"if ob\.reduced is None or ob\.operator is None:",
        r".* and .*",
        "sources and operator of a reduction come together",
    ),
    (
        r"if len\(served\) == 1:",
        r"if len\(served\) (== 0|<= 1|< 1|is 1):",
        "a shortcut: grouping one consumer by domain gives the same delivery",
    ),
    (
        r"local = ob\.domain_of\[key\] == ob\.domain_of\[served\[0\]\]",
        r".*served\[ ?-1\]\]",
        "there is one consumer here",
    ),
    (
        r"self\.held\[PARAMETERS\] = dict\.fromkeys\(ob\.informed, Holding\(True.*",
        r".*Holding\(False.*",
        "nothing asks whether parameters are complete",
    ),
    (
        r"return any\(endpoint in at for surface, at in held if surface != PARAMETERS\)",
        r".*is not PARAMETERS\)",
        "a state that has parameters has them under this very name",
    ),
    (
        r"return self\.ob\.reduced if self\.ob\.reduced and sources == self\.ob\.reduced.*",
        r".*(if not self|sources (>|>=|is) self).*",
        "one object for equal sets: it makes comparisons cheap and changes none",
    ),
)
"""Survivors that no test can kill: patterns of the line before and after, and why."""


def explanation(mutant: CodeMutant) -> str:
    """Why a mutant is equivalent; empty where nothing says so."""
    for before, after, why in EXPLAINED:
        if re.fullmatch(before, mutant.before) and re.fullmatch(after, mutant.after):
            return why
    return ""


def path_of(module: str, root: Path) -> Path:
    """The file of a dotted module name below ``root``."""
    return root.joinpath(*module.split(".")).with_suffix(".py")


def code_mutants(module: str, root: Path) -> Iterator[CodeMutant]:
    """Every mutant of a module, in cosmic-ray's order; annotations are left alone.

    Raises:
        ImportError: cosmic-ray is not installed.
    """
    mutating: Any = importlib.import_module("cosmic_ray.mutating")
    trees: Any = importlib.import_module("cosmic_ray.ast")
    plugins: Any = importlib.import_module("cosmic_ray.plugins")
    path = path_of(module, root)
    source = path.read_text("utf-8")
    annotated = _annotations(source)
    lines = source.splitlines()
    tree = trees.get_ast_from_path(path)
    for name in sorted(plugins.operator_names()):
        kind = plugins.get_operator(name)
        if kind.arguments():
            continue
        positions = [
            start for node in trees.ast_nodes(tree) for start, _ in kind().mutation_positions(node)
        ]
        for occurrence, start in enumerate(positions):
            if any(first <= start < last for first, last in annotated):
                continue
            mutated = mutating.mutate_code(source, kind(), occurrence)
            if mutated is None or mutated == source:
                continue
            changed = mutated.splitlines()
            at = next(
                (i for i, (a, b) in enumerate(zip(lines, changed, strict=False)) if a != b), 0
            )
            yield CodeMutant(
                id=f"{module}:{name.removeprefix('core/')}:{occurrence}",
                module=module,
                line=at + 1,
                before=lines[at].strip(),
                after=changed[at].strip(),
                source=mutated,
            )


def _annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations stand: they are never evaluated, so a change in one changes nothing."""
    spans: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for node in ast.walk(ast.parse(source)):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(part, ast.AST):
                spot: Any = part
                spans.append(
                    ((spot.lineno, spot.col_offset), (spot.end_lineno, spot.end_col_offset))
                )
    return spans


class _Mutated(importlib.machinery.SourceFileLoader):
    """Loads one module from other source than its file's."""

    def __init__(self, mutant: CodeMutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._source = mutant.source

    def get_code(self, fullname: str) -> Any:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _Finder:
    def __init__(self, mutant: CodeMutant, root: Path) -> None:
        self._module = mutant.module
        path = str(path_of(mutant.module, root))
        self._spec = importlib.util.spec_from_file_location(
            mutant.module, path, loader=_Mutated(mutant, path)
        )

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return self._spec if name == self._module else None


def _trial(mutant: CodeMutant, root: Path, tests: Sequence[str], budget: int) -> None:
    """In the forked process: run the tests over the mutant, and end with pytest's exit code."""
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (budget, budget + 1))
    os.chdir(root)
    sys.path.insert(0, str(root))
    for name in [m for m in sys.modules if m.partition(".")[0] in PROJECT]:
        del sys.modules[name]
    finder: Any = _Finder(mutant, root)
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module(mutant.module)
    except Exception:
        os._exit(UNIMPORTABLE_CODE)
    pytest: Any = importlib.import_module("pytest")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-o", "addopts="]
    # One file at a time: most mutants fall to the first, and collecting the rest is not free.
    codes = (int(pytest.main([*options, test])) for test in tests)
    os._exit(next((code for code in codes if code), 0))


UNIMPORTABLE_CODE = 97
_FATES = {
    0: Fate.SURVIVED,
    1: Fate.KILLED,
    UNIMPORTABLE_CODE: Fate.UNIMPORTABLE,
    -signal.SIGXCPU: Fate.HUNG,
}


def judge_code(
    mutants: Iterable[CodeMutant],
    root: Path,
    tests: Sequence[str],
    *,
    jobs: int = 1,
    budget: int = 30,
    progress: Callable[[CodeMutant, Fate], None] | None = None,
) -> dict[str, Fate]:
    """Try every mutant on ``tests``, ``jobs`` at a time. Posix only.

    ``budget`` (seconds of CPU time for one trial, so that a busy machine changes no fate) ends what
    hangs; a trial that it ends is not a kill.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # or every trial's collector walks, and so copies, all that was loaded here
    fates: dict[str, Fate] = {}
    running: dict[int, CodeMutant] = {}
    waiting = iter(mutants)
    while True:
        while len(running) < jobs and (mutant := next(waiting, None)) is not None:
            pid = os.fork()
            if pid == 0:
                try:
                    _trial(mutant, root, tests, budget)
                finally:
                    os._exit(99)
            running[pid] = mutant
        if not running:
            return fates
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                mutant = running.pop(pid)
                fate = _FATES.get(os.waitstatus_to_exitcode(status), Fate.CRASHED)
                fates[mutant.id] = fate
                if progress:
                    progress(mutant, fate)
        time.sleep(0.01)
