"""Every search of this folder runs without coverage, and in the slow run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the searches to the run of slow tests; what is longer still stays apart."""
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="module")
def without_coverage(untraced: None) -> None:
    """Let searches take the time that they need, and no more."""
