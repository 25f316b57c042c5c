"""Declaring a handler for one test, as tests of the worker do; gauges that keep nothing."""

from __future__ import annotations

import pytest

from django_jobs.observe import gauges as room
from django_jobs.observe.gauges import DatabaseGauges
from tests.integration.worker.conftest import declare

__all__ = ["declare", "gauges"]


@pytest.fixture
def gauges(monkeypatch: pytest.MonkeyPatch) -> DatabaseGauges:
    """Gauges whose every look is a new one."""
    monkeypatch.setattr(room, "FRESH", 0.0)
    return DatabaseGauges("default")
