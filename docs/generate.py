"""Write docs/reference from the program itself: commands, rules, and the Python API."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from sembridge import io
from sembridge.cli import app
from sembridge.obligations import CONTRACT_RULES
from sembridge.rules import RULES

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
PACKAGES = ("sembridge", "oracle", "mutations", "experiments", "paper_figs")
NOTE = "<!-- written by `make docs`; a test holds it to the program -->\n\n"


def commands() -> str:
    """Every command with its arguments, options and help."""
    group: Any = typer.main.get_command(app)
    parts = [NOTE + "# Commands\n"]
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option"]
        usage = " ".join(["sembridge", name, *(_metavar(a) for a in arguments), "[OPTIONS]"])
        parts.append(f"## {name}\n\n`{usage}`\n\n{inspect.cleandoc(command.help or '')}\n")
        rows = [f"| `{_metavar(a)}` | {_one_line(a.help)} |" for a in arguments]
        rows += [
            f"| `{', '.join(o.opts + o.secondary_opts)}` | {_one_line(o.help)}{_default(o)} |"
            for o in options
        ]
        if rows:
            parts.append(
                "| argument or option | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n"
            )
    return "\n".join(parts)


def _metavar(argument: Any) -> str:
    return argument.metavar or argument.name.upper()


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _default(option: Any) -> str:
    default = option.default
    if isinstance(default, bool | type(None)) or "Sentinel" in type(default).__name__:
        return ""
    return f" (default `{default}`)" if default != "" and not callable(default) else ""


def rules() -> str:
    """Every rule of the checker and of contract validation."""
    rows = [
        f"| `{r.name}` | {r.on if isinstance(r.on, str) else r.on.__name__} | {r.says} |"
        for r in RULES
    ]
    validation = [
        f"| `{name}` | {rule.__name__.lstrip('_').replace('_', ' ')} |"
        for name, rule in CONTRACT_RULES
    ]
    return (
        NOTE
        + "# Rules\n\n## Of a plan\n\n| rule | looks at | requires that |\n| --- | --- | --- |\n"
        + "\n".join(rows)
        + "\n\n## Of a contract\n\n| rule | requires that |\n| --- | --- |\n"
        + "\n".join(validation)
        + "\n"
    )


def api() -> str:
    """Public names of every module with their signatures and docstrings."""
    parts = [NOTE + "# Python API\n"]
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if ".cli" in module:
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            entries = list(_entries(tree))
            title = module.removesuffix(".__init__")
            parts.append(f"## {title}\n\n{ast.get_docstring(tree) or ''}\n")
            parts += [f"### `{signature}`\n\n{text}\n" for signature, text in entries]
    return "\n".join(parts)


def _entries(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node) or ""
            yield (node.name if isinstance(node, ast.ClassDef) else _signature(node)), text
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                        yield f"{node.name}.{_signature(inner)}", ast.get_docstring(inner) or ""


def _signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


PAGES = {"commands.md": commands, "rules.md": rules, "api.md": api}


def main() -> None:
    """Write every page."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        io.write(REFERENCE / name, page().encode())


if __name__ == "__main__":
    main()
