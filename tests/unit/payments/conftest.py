"""One provider process per module, emptied before each test, and ways to talk to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import pytest

from testproject.payments.client import Answer, PaymentsClient
from testproject.payments.process import ProviderProcess


class Charge(Protocol):
    """A charge with sensible values, each of which can be replaced."""

    def __call__(self, **changes: Any) -> Answer: ...


@pytest.fixture(scope="module")
def running_provider() -> Iterator[ProviderProcess]:
    """Start a provider for one module."""
    with ProviderProcess() as provider:
        yield provider


@pytest.fixture
def provider(running_provider: ProviderProcess) -> Iterator[ProviderProcess]:
    """Return the module's provider with an empty ledger; whatever a test left held is let go."""
    running_provider.reset()
    yield running_provider
    running_provider.reset()


@pytest.fixture
def client(provider: ProviderProcess) -> PaymentsClient:
    """Return a client of the provider."""
    return PaymentsClient(provider.url)


@pytest.fixture
def charge(client: PaymentsClient) -> Charge:
    """Return a function that charges order 7 unless told otherwise."""

    def send(**changes: Any) -> Answer:
        usual = {
            "order_id": 7,
            "amount": "12.50",
            "currency": "EUR",
            "key": "key-7",
            "operation": "job-7",
            "timeout": 5.0,
        }
        return client.charge(**(usual | changes))

    return send


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Return a function that calls another one on a thread of its own."""
    with ThreadPoolExecutor(max_workers=32) as pool:
        yield pool.submit
