"""Hypothesis profiles, golden files, and the command line in process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from sembridge.cli import main

settings.register_profile(
    "ci", deadline=None, max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck)
)
settings.register_profile("deep", parent=settings.get_profile("ci"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/")


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def sembridge(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Run the command line as a user does: exit code, stdout, stderr."""

    def run(*args: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["sembridge", *map(str, args)])
        code: object = 0
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code
        out, err = capfdbinary.readouterr()
        return Ran(int(code or 0) if not isinstance(code, str) else 1, out.decode(), err.decode())

    return run


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare with tests/golden/NAME; --update-golden rewrites it."""
    folder = Path(__file__).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text

    return compare
