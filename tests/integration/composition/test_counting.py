"""What becomes of batches is counted where it happens, once per commit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from django_jobs import batch, telemetry
from django_jobs.exceptions import PermanentError
from django_jobs.observe.metrics import Metrics
from django_jobs.testing import JobsKit
from tests.integration.composition.conftest import Declare


@pytest.fixture
def counted() -> Iterator[CollectorRegistry]:
    """A registry that hears telemetry."""
    registry = CollectorRegistry()
    unsubscribe = telemetry.subscribe(Metrics(registry))
    yield registry
    unsubscribe()


def work(ends: str) -> None:
    """Succeed, or become a dead letter."""
    if ends == "dead":
        raise PermanentError("no such order")


def after() -> None:
    """Follow a batch."""


def closed(registry: CollectorRegistry, outcome: str) -> float:
    """Return how many batches were closed with this outcome."""
    return registry.get_sample_value("django_jobs_batches_closed_total", {"outcome": outcome}) or 0


def test_closed_batches_and_their_callbacks_are_counted(
    jobs: JobsKit, declare: Declare, counted: CollectorRegistry
) -> None:
    """A batch counts when it is closed, by whether all members succeeded, and its callback by its own type."""
    member, callback = declare(work), declare(after, queue_name="later", priority=3)
    with batch(callback=callback.prepare()):
        member.enqueue(ends="well")
    with batch(on_dead="continue"):
        member.enqueue(ends="well")
        member.enqueue(ends="dead")
    with batch(callback=callback.prepare()):
        member.enqueue(ends="dead")
    jobs.run_until_idle()

    assert (closed(counted, "succeeded"), closed(counted, "mixed")) == (1, 1)
    labels = {"queue": "later", "job_type": "kit.after", "priority": "high"}
    assert counted.get_sample_value("django_jobs_batch_callbacks_total", labels) == 1
