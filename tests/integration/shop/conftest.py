"""Orders, a real provider, and a worker's claim and execution in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from django_jobs.domain.ids import uuid7
from django_jobs.models import Job
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.execute import execute
from testproject.payments.process import ProviderProcess
from testproject.shop.models import Order

MakeOrder = Callable[..., Order]
RunNext = Callable[[], Job]


@pytest.fixture(scope="module")
def running_provider() -> Iterator[ProviderProcess]:
    """Start a provider for one module."""
    with ProviderProcess() as provider:
        yield provider


@pytest.fixture
def provider(running_provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch) -> ProviderProcess:
    """Return an emptied provider, to which this process's charges go."""
    running_provider.reset()
    monkeypatch.setenv("PAYMENTS_URL", running_provider.url)
    return running_provider


@pytest.fixture
def make_order(transactional_db: None) -> MakeOrder:
    """Return a function that stores an order; its traits are its fields."""
    made: list[Order] = []

    def make(**traits: Any) -> Order:
        usual = {
            "number": f"S-{len(made) + 1}",
            "customer": "Saoirse Nielsen",
            "amount": Decimal("24.00"),
            "currency": "EUR",
            "card": "visa 4242",
        }
        made.append(Order.objects.create(**(usual | traits)))
        return made[-1]

    return make


@pytest.fixture
def claimer(transactional_db: None) -> Claimer:
    """Return what a child process claims with."""
    config = WorkerConfig(
        worker_id=str(uuid7()),
        name="test",
        database="default",
        queues=(),
        threads=1,
        processes=1,
        grace=30.0,
        poll=1.0,
    )
    return Claimer(config)


@pytest.fixture
def run_next(claimer: Claimer) -> RunNext:
    """Return a function that claims the next due job, executes it in this thread and returns it as it then is."""

    def run() -> Job:
        (attempt,) = claimer.take(1, 0)
        execute(attempt)
        return Job.objects.get(pk=attempt.job_id)

    return run
