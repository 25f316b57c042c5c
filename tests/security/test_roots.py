"""S22: a worker says it when it has every right on its machine."""

from __future__ import annotations

import logging
import os

import pytest

from django_jobs.management.commands.runworker import _warn_root


@pytest.mark.parametrize(("user", "lines"), [(0, 1), (1000, 0)])
def test_s22_worker_as_root_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, user: int, lines: int
) -> None:
    """S22: root is warned of in the log, anybody else is not."""
    monkeypatch.setattr(os, "geteuid", lambda: user)

    with caplog.at_level(logging.WARNING, logger="django_jobs"):
        _warn_root()

    assert ["runs as root" in record.getMessage() for record in caplog.records] == [True] * lines
