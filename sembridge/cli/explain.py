"""Why an edge gets its plan: the explain command."""

from __future__ import annotations

import typer

from sembridge import io
from sembridge.cli.console import ContractPath, Json, Quiet, emit, out
from sembridge.explain import explain as explain_contract


def explain(contract: ContractPath, as_json: Json = False, quiet: Quiet = False) -> None:
    """Say why this contract gets this plan: which fact, from where, allowed what.

    What is missing, or is only evidence, is named with what it would save. Every figure is the
    difference of two lowered contracts. Exit 0, 1 where the contract is rejected, 2 bad input.

    Examples: `sembridge explain edge.json` · `sembridge explain edge.json --json`
    """
    found = explain_contract(io.read_contract(contract))
    if as_json:
        emit(found)
    elif not quiet:
        for sentence in found.sentences:
            out.print(sentence, markup=False)
    raise typer.Exit(1 if found.violations else 0)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(explain)
