"""The clock of these tests, and one payments provider per module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_jobs.effects import record
from testproject.payments.process import ProviderProcess
from tests.integration.effects.factories import Crash, MovableClock, movable_clock
from tests.integration.effects.storages import BUCKETS


@pytest.fixture(autouse=True)
def crashes_end_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a ``Crash`` stand for the end of the process: nothing is written after it, not even what a handler caught."""
    described = record._described

    def unless_dead(error: BaseException) -> str:
        if isinstance(error, Crash):
            raise error
        return described(error)

    monkeypatch.setattr(record, "_described", unless_dead)


@pytest.fixture
def time(transactional_db: None) -> Iterator[MovableClock]:
    """The clock of all statements, which stands until the test moves it."""
    with movable_clock() as source:
        yield source


@pytest.fixture(scope="module")
def running_provider() -> Iterator[ProviderProcess]:
    """Start a provider for one module."""
    with ProviderProcess() as provider:
        yield provider


@pytest.fixture
def provider(running_provider: ProviderProcess, settings: Any) -> Iterator[ProviderProcess]:
    """The module's provider with an empty ledger, to which the operations talk."""
    running_provider.reset()
    settings.PAYMENTS_URL = running_provider.url
    yield running_provider
    running_provider.reset()


@pytest.fixture
def places(settings: Any, tmp_path: Path) -> Iterator[Path]:
    """One storage of each kind, empty; returns the folder of the first."""
    settings.STORAGES = {
        "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
        "files": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": str(tmp_path)}},
        "memory": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
        "objects": {"BACKEND": "tests.integration.effects.storages.ObjectStorage"},
        "renaming": {"BACKEND": "tests.integration.effects.storages.RenamingStorage"},
    }
    BUCKETS.clear()
    yield tmp_path
    BUCKETS.clear()
