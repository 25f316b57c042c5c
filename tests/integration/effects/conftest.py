"""The clock of these tests, and one payments provider per module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testproject.payments.process import ProviderProcess
from tests.integration.effects.factories import MovableClock, movable_clock


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
