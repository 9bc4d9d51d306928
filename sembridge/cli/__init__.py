"""The command line: one module per group of commands, each with ``register(app)``.

Exit codes: 0 legal or done, 1 illegal or a claim differs, 2 bad input, 3 unknown or budget
ended, 70 a defect of this program (never read as a verdict), 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback

import typer

from sembridge.errors import SemBridgeError

app = typer.Typer(
    name="sembridge",
    help="What must cross a boundary between two vendor stacks: contracts, plans, judges.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:  # pyright: ignore[reportUnusedFunction]
    """Keep sub-commands even where there is one only."""


for _module in sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "console"):
    importlib.import_module(f"{__name__}.{_module}").register(app)


def main() -> None:
    """Entry point: library errors become one line and their exit code."""
    try:
        app()
    except SemBridgeError as error:
        print(f"sembridge: error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        sys.exit(70)
