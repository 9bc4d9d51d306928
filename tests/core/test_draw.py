"""Plans as text and as pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from sembridge import io
from sembridge.draw import draw_svg, draw_text, size_of
from sembridge.errors import BadInput
from tests.core.build import contract, plan

CASES = sorted((Path(__file__).parent.parent / "cases").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_text_drawing(case, golden):
    drawn = draw_text(io.read_contract(case / "contract.json"), io.read_plan(case / "plan.json"))
    golden(f"show/{case.name}.txt", drawn)


@pytest.mark.parametrize("name", ["result-owner-token", "partial-completed", "unavailable-source"])
def test_picture_shows_every_endpoint_op_and_size(name):
    case = Path(__file__).parent.parent / "cases" / name
    edge, ops = io.read_contract(case / "contract.json"), io.read_plan(case / "plan.json")
    svg = draw_svg(edge, ops)
    assert svg == draw_svg(edge, ops)
    words = " ".join(ET.fromstring(svg).itertext())
    for endpoint in (*edge.producers, *edge.consumers):
        assert endpoint.id in words
    for domain in edge.domains:
        assert domain in words
    for number in range(1, len(ops.ops) + 1):
        assert str(number) in words.split()


def test_sizes():
    assert [size_of(n) for n in (0, 999, 1000, 3_201_024, 10**10)] == [
        "0 B",
        "999 B",
        "1 kB",
        "3.201 MB",
        "10 GB",
    ]


def test_too_large_a_picture_is_refused():
    with pytest.raises(BadInput, match="too large to draw"):
        draw_svg(contract(64, tails="t"), plan())


def test_show_command(sembridge, tmp_path):
    case = CASES[0]
    picture = tmp_path / "plan.svg"
    args = ("show", case / "contract.json", case / "plan.json")
    assert sembridge(*args, "-o", picture).code == 0
    assert picture.read_bytes().startswith(b"<?xml")
    assert sembridge(*args, "-o", tmp_path / "plan.gif").code == 2
    assert "locality op 2" in sembridge(*args).out
