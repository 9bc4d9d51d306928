"""The command line: one module per group of commands, each with ``register(app)``.

Exit codes: 0 legal or done, 1 illegal or a claim differs, 2 bad input, 3 unknown or budget
ended, 4 a live run that did not finish, 70 a defect of this program (never read as a verdict),
130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback

import typer
from click.exceptions import Abort

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
        code: object = app(standalone_mode=False)
    except Abort:
        return 130
    except SystemExit:
        # Raised where stdout was closed, after it was wrapped; anything else has a meaning.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            raise BrokenPipeError from None
        raise
    except Exception as error:
        show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
        if show is None or not isinstance(code, int):
            raise
        show()
        return code
    return code if isinstance(code, int) else 0


def _closed(code: int) -> int:
    """Let the interpreter end quietly though stdout cannot be flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code
