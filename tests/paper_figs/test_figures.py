"""Figures: equal bytes for equal results, what is the paper's marked, gaps said to be gaps."""

from __future__ import annotations

import shutil
import struct
import xml.etree.ElementTree as ET

import pytest

from experiments.ledger import REPORTED
from paper_figs.figures import FIGURES, FULL, PROJECTED, WIDTH, Results, pictures

MEASURED = {"figure2", "figure3", "figure4"}


def words(svg: bytes) -> str:
    return " ".join(" ".join(ET.fromstring(svg).itertext()).split())


@pytest.fixture(scope="module")
def committed(request):
    return Results(request.config.rootpath / "results")


@pytest.fixture(scope="module")
def drawn(committed):
    return {name: pictures(draw, committed) for name, draw in FIGURES.items()}


@pytest.mark.parametrize("name", FIGURES)
def test_committed_figures_are_what_the_results_give(name, drawn, committed):
    assert set(drawn[name]) == {"svg", "pdf", "png"}
    for suffix in ("svg", "pdf"):
        path = committed.folder / "figures" / f"{name}.{suffix}"
        assert path.read_bytes() == drawn[name][suffix], path.name


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_a_column_wide_and_undated(name, drawn):
    assert b"CreationDate" not in drawn[name]["pdf"]
    (pixels,) = struct.unpack(">I", drawn[name]["png"][16:20])
    assert pixels == pytest.approx(300 * WIDTH, abs=1)


def test_figures_are_the_same_bytes_twice(drawn, committed):
    assert pictures(FIGURES["figure3"], committed) == drawn["figure3"]


@pytest.mark.parametrize("name", FIGURES)
def test_without_results_figures_say_so(name, tmp_path):
    shown = words(pictures(FIGURES[name], Results(tmp_path), ["svg"])["svg"])
    assert ("not run" in shown) == (not name.startswith("figure1"))


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_what_is_the_papers_is_marked(name, tmp_path):
    shown = words(pictures(FIGURES[name], Results(tmp_path), ["svg"])["svg"])
    assert REPORTED in shown


def test_plan_drawings_show_what_crosses(drawn):
    shown = {plan: words(drawn[f"figure1-{plan}"]["svg"]) for plan in ("R0", "P0", "S1")}
    assert "cross 3.201 MB in 4" in shown["R0"]
    assert "cross 64 B in 4" in shown["P0"]
    assert "cross 16 B in 1" in shown["S1"]
    assert all("legal" in text for text in shown.values())


def lightness(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2


def test_the_two_plans_differ_in_grey():
    brighter, darker = sorted((lightness(FULL), lightness(PROJECTED)), reverse=True)
    assert (brighter + 0.05) / (darker + 0.05) > 1.9


def test_render_draws_from_the_folder_alone(sembridge, tmp_path, committed):
    shutil.copy(committed.folder / "wire.json", tmp_path)
    assert sembridge("render", "figures", "--results", tmp_path).code == 0
    assert "not run" in (tmp_path / "figures" / "kill-matrix.svg").read_text(encoding="utf-8")
    assert {p.stem for p in (tmp_path / "figures").iterdir()} == set(FIGURES)
