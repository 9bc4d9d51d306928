"""What the site needs beyond its pages: a whole menu, and links that stay inside it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")


SECTIONS = {"How to": "how-to", "Explanation": "explanation", "Decisions": "decisions"}


def on_config(config: Any) -> Any:
    """Put every page of a section into the menu: those that ``mkdocs.yml`` orders come first."""
    menu = {title: pages for entry in config.nav for title, pages in entry.items()}
    for title, folder in SECTIONS.items():
        listed = menu.setdefault(title, [])
        pages = sorted(p.relative_to(DOCS).as_posix() for p in (DOCS / folder).glob("*.md"))
        listed += [page for page in pages if page not in listed]
    config.nav = [{title: pages} for title, pages in menu.items()]
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links into the source tree, which is no part of the site, become their text and the path."""
    folder = posixpath.dirname(page.file.src_uri)

    def inside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link["target"]))
        if path.startswith("docs/"):
            return link[0]
        return link["text"] if path in link["text"] else f"{link['text']} (`{path}`)"

    return _LINK.sub(inside, markdown)
