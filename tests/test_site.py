"""The documents build as a site, strictly, and a reader's machine has nothing to fetch for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("material", reason="mkdocs-material is not installed (extra: site)")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder


def test_every_page_is_there_and_in_the_menu(site):
    pages = [p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md")]
    menu = (site / "index.html").read_text()
    for page in pages:
        assert (site / page.with_suffix(".html")).exists()
        assert page.with_suffix(".html").as_posix() in menu, page


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r'(?:src|srcset)="https?:', text), page
        assert not re.findall(r'<link[^>]+href="https?:', text), page


def test_links_lead_somewhere_in_the_site(site):
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for target in re.findall(r'href="([^"#?:]+)(?:[#?][^"]*)?"', page.read_text()):
            assert (page.parent / target).resolve().exists(), (page, target)
