"""The command line: one module per group of commands, each with ``register(app)``.

Exit codes: 0 legal or done, 1 illegal or a claim differs, 2 bad input, 3 unknown or budget
ended, 4 a live run that did not finish, 70 a defect of this program (never read as a verdict),
130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from sembridge.errors import SemBridgeError

MODULES: dict[str, str] = {
    "check": "plans",
    "lower": "plans",
    "show": "plans",
    "explain": "explain",
    "edges": "models",
    "placements": "graphs",
    "surface": "serving",
    "mutate": "mutate",
    "reproduce": "reproduce",
    "render": "reproduce",
    "matrix": "reproduce",
    "report": "report",
    "doctor": "doctor",
    "live": "live",
    "live-surfaces": "live",
    "live-mlp": "live",
}
"""Where a command is found without importing every module: a command starts with what it needs.

A command that has no entry here is found as well, in the time that all of them take.
"""


class _Commands(TyperGroup):
    """The commands of every module, imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command, in order."""
        return sorted(_commands(*_modules()))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One command, or None."""
        module = MODULES.get(cmd_name)
        return _commands(*([module] if module else _modules())).get(cmd_name)


def _modules() -> list[str]:
    found = {path.stem for path in Path(__file__).parent.glob("*.py")}
    return sorted(found - {"__init__", "console"})


@cache
def _commands(*modules: str) -> Mapping[str, Any]:
    part = _typer()
    for module in modules:
        importlib.import_module(f"{__name__}.{module}").register(part)
    return get_group(part).commands


def _typer(**settings: Any) -> typer.Typer:
    made = typer.Typer(
        name="sembridge",
        help="What must cross a boundary between two vendor stacks: contracts, plans, judges.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )

    @made.callback()
    def root() -> None:  # pyright: ignore[reportUnusedFunction]
        """Keep sub-commands even where there is one only."""

    return made


app = _typer(cls=_Commands)


def main() -> None:
    """Entry point: library errors become one line and their exit code."""
    try:
        code = _run()
        sys.stdout.flush()
    except SemBridgeError as error:
        print(f"sembridge: error: {error}", file=sys.stderr)  # noqa: T201
        code = error.exit_code
    except BrokenPipeError:
        code = _closed(141)
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        print(f"sembridge: error: cannot write: {error.strerror}", file=sys.stderr)  # noqa: T201
        code = _closed(2)
    except Exception:
        traceback.print_exc()
        code = 70
    sys.exit(code)


def _run() -> int:
    """Run the command line; left alone, a closed pipe would end with exit code 1."""
    try:
        code: object = app(prog_name="sembridge", standalone_mode=False)
    except typer.Abort:
        return 130
    except SystemExit:
        # Raised where stdout was closed, after it was wrapped; anything else has a meaning.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            raise BrokenPipeError from None
        raise
    except Exception as error:
        code, says = getattr(error, "exit_code", None), getattr(error, "format_message", None)
        if says is None or not isinstance(code, int):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(says())  # noqa: T201
        else:
            asked: Any = getattr(error, "ctx", None)
            command = asked.command_path if asked else "sembridge"
            message = " ".join(str(says()).split()).rstrip(".")
            print(f"sembridge: error: {message} (see {command} --help)", file=sys.stderr)  # noqa: T201
        return code
    return code if isinstance(code, int) else 0


def _closed(code: int) -> int:
    """Let the interpreter end quietly though stdout cannot be flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code
