"""The paper's own numbers: quoted beside ours as ``reported by the paper``, never as ours."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

PAPER: dict[str, Any] = json.loads(files("experiments").joinpath("paper.json").read_text("utf-8"))
"""Facts of arXiv:2609.08231v1, by table, figure and section."""
