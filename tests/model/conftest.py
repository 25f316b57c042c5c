"""Every search of this folder runs without coverage."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def without_coverage(untraced: None) -> None:
    """Let searches take the time that they need, and no more."""
