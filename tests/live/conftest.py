"""Worlds that were kept for the next plan end with the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sembridge.live.judge import close_worlds


@pytest.fixture(scope="session", autouse=True)
def no_world_left() -> Iterator[None]:
    yield
    close_worlds()
