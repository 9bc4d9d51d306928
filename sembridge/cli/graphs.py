"""Facts from torch graphs: what `edges --graph` dispatches to, and the placements command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sembridge import io
from sembridge.cli.console import Json, Quiet, emit, err, out, table
from sembridge.contract import RuntimeFacts
from sembridge.errors import BadInput
from sembridge.graphs.derive import CutFacts, derive, edge_at, facts_at
from sembridge.graphs.lattice import Element
from sembridge.graphs.mesh import RankMesh
from sembridge.graphs.program import Program, merge
from sembridge.graphs.pt2 import read_pt2
from sembridge.models import TAG, NamedEdge
from sembridge.surfaces import Complete, Surface

Graphs = Annotated[
    list[Path] | None,
    typer.Option("--graph", help="A program of torch.export.save; once, or once for each rank."),
]
Domains = Annotated[
    Path | None, typer.Option(help="Mesh file: groups, placements of inputs, domains, endpoints.")
]


def read_mesh(path: Path) -> RankMesh:
    """A mesh file, its parts checked against each other.

    Raises:
        BadInput: with the JSON path of the first field that is wrong.
    """
    try:
        mesh = io.decode(io.read_bytes(path), RankMesh)
        mesh.check()
        return mesh
    except BadInput as error:
        raise error.within(error.file or str(path)) from None


def graph_edge(
    graphs: list[Path], cut: str, domains: Path, surface: Surface, owner: int | None
) -> tuple[CutFacts, NamedEdge]:
    """The facts at a cut of exported programs, and the edge that crosses there.

    Raises:
        BadInput: a file, cut or owner that does not fit.
    """
    mesh = read_mesh(domains)
    if owner is not None and not 0 <= owner < len(mesh.producers):
        raise BadInput(f"rank {owner} of {len(mesh.producers)}", path="--owner")
    found = facts_at(_programs(graphs), mesh, cut)
    runtime = RuntimeFacts(
        surface=None if isinstance(surface, Complete) else surface,
        owner=None if owner is None else (mesh.producers[owner].id,),
        tag=TAG,
        by="command line",
    )
    return found, NamedEdge(edge=edge_at(found, mesh), graph=found.facts, runtime=runtime)


def _programs(graphs: list[Path]) -> list[Program]:
    return [read_pt2(path) for path in graphs]


def placements(
    graphs: Annotated[
        list[Path], typer.Argument(metavar="PROGRAM...", help="One, or each rank's.")
    ],
    domains: Annotated[Path, typer.Option(help="Mesh file.")],
    group: Annotated[
        str | None, typer.Option(help="Group to interpret; the producers' by default.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List what is known of every node of an exported program across the ranks of a group.

    Use it to choose a cut, and to see at which node knowledge ends. What it lists rests on the
    mesh file; `edges --graph` says what of it may enter a contract.

    Example: `sembridge placements program.pt2 --domains mesh.json`
    """
    mesh = read_mesh(domains)
    if group is not None and group not in mesh.groups:
        raise BadInput(f"no such group {group!r}", path="--group")
    derivation = derive(merge(_programs(graphs)), mesh, group)
    rows: list[tuple[str, str, str, str, str]] = []
    for node in derivation.program.nodes:
        state = derivation.states.get(node.name)
        if isinstance(state, Element) and node.type is not None:
            shape = " x ".join(map(str, node.type.shape))
            rows.append((node.name, node.module, shape, str(state), state.why or state.by))
    if as_json:
        keys = ("node", "module", "shape", "placement", "by")
        doubts = [{"node": d.node, "says": d.says} for d in derivation.doubts]
        nodes = [dict(zip(keys, row, strict=True)) for row in rows]
        emit({"group": derivation.group, "nodes": nodes, "doubts": doubts})
        return
    shown = [tuple(map(escape, row)) for row in rows]
    out.print(table("Placements", ("node", "module", "local shape", "across", "by"), shown))
    if not quiet:
        for doubt in derivation.doubts:
            err.print(f"warning: {doubt.node} {doubt.says}", markup=False)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(placements)
