"""A small report: some of the matrix and the edges, the shared cases, and hostile names."""

from __future__ import annotations

from pathlib import Path

import msgspec

from experiments import documents
from experiments.documents import Document
from experiments.ledger import REPORTED, Check
from experiments.matrix import matrix
from experiments.real_edges import contracts
from experiments.registry import Result, Settings, Table, Volatile
from paper_figs.report.explorer import Case, Given, case_of, read_case
from paper_figs.report.page import Figure, page
from sembridge.contract import Contract

CASES = Path(__file__).parent.parent / "cases"
SHARED = (
    "bug-07-local-argmax",
    "forward-byte-equality-only",
    "forward-representative",
    "forward-slices",
    "logprobs-narrowed",
    "partial-projected-early",
    "redelivery",
)
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!--<script>",
    "'\"><svg onload=document.title=`owned`>",
    "${document.title='owned'}&lt;",
)


def hostile() -> Given:
    """A small case whose every name is markup."""
    one = next(c for c in matrix() if c.id == "replica.tp2.d2.v0").contract
    text = msgspec.json.encode(one).decode()
    for plain, name in zip(
        ('"p0"', '"c0"', '"tail0"', '"replica.tp2.d2.v0"', '"hidden"'), HOSTILE, strict=True
    ):
        text = text.replace(plain, msgspec.json.encode(name).decode())
    return Given(contract=msgspec.json.decode(text, type=Contract))


def sample_cases() -> list[Case]:
    wanted = [c.contract for c in matrix() if c.id.endswith(("tp2.d1.v0", "tp4.d3.v1"))]
    edges = contracts()
    return [
        *(case_of("matrix", Given(contract=c)) for c in wanted),
        *(case_of("edges", Given(contract=edges[n])) for n in ("minimax-m2.7.result",)),
        *(case_of("given", read_case(CASES / name)) for name in SHARED),
        case_of("given", hostile()),
    ]


def sample_results(seconds: float = 1.0) -> list[Document]:
    """One result that holds, one that differs, one on times; names as hostile as any."""
    checks = (
        Check(name="a count", ours=3, expected=3),
        Check(name=HOSTILE[0], where=HOSTILE[1], ours=4, expected=5, note=HOSTILE[3]),
    )
    tables = (
        Table(title="Long", columns=("n", REPORTED), rows=tuple((i, i * i) for i in range(40))),
        Table(title=HOSTILE[4], columns=(HOSTILE[2],) * 14, rows=(tuple(HOSTILE[:1]) * 14,)),
    )
    measured = {"table2.replica.cases": 18, "table2.partial.cases": 17}
    timed = Volatile(
        measured={"compile_p95_ms.a100_host": seconds},
        tables=(Table(title="Times", columns=("s",), rows=((seconds,),)),),
        notes={HOSTILE[2]: seconds},
    )
    results = (
        Result(name="table2", how="by computation", measured=measured, tables=tables),
        Result(name="ladder", how=HOSTILE[1], checks=checks),
        Result(name="compile", how="by the clock", volatile=timed),
    )
    return [documents.document(result, Settings(), seconds) for result in results]


def sample_page(cases: list[Case], seconds: float = 1.0) -> bytes:
    picture = (
        "<svg xmlns='http://www.w3.org/2000/svg'><script>document.title='owned'</script></svg>"
    )
    return page(sample_results(seconds), [Figure(title=HOSTILE[1], svg=picture.encode())], cases)
