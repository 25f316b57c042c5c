"""An event reaches its subscriber as a job, once."""

from __future__ import annotations

import pytest

from django_jobs import Event
from django_jobs.models import Attempt, Delivery, DeliveryAttempt, Job, OutboxEvent
from tests.integration.outbox.conftest import Subscribe, delivered, published
from tests.integration.worker.conftest import run_one

pytestmark = pytest.mark.django_db(transaction=True)


def test_event_becomes_a_job_of_its_subscriber(subscriber: Subscribe) -> None:
    """Published, delivered, run: the handler gets the event that was stored."""
    seen: list[Event] = []
    subscriber(lambda event: seen.append(event), owner="shop")

    event_id = published(7, subject="order:7")
    delivered()
    attempt: Attempt = run_one()

    stored = OutboxEvent.objects.get()
    delivery = Delivery.objects.get()
    assert attempt.outcome == "succeeded"
    assert (delivery.state, delivery.fence, delivery.destination) == ("published", 1, "local:tests.receipt")
    assert DeliveryAttempt.objects.get().outcome == "confirmed"
    assert (seen[0].id, seen[0].data, seen[0].data_text) == (event_id, {"order_id": 7}, stored.data)
    assert (stored.pk, stored.routed_count, stored.job_id) == (event_id, 1, None)
    job = Job.objects.get()
    assert (job.correlation_id, job.subject) == (str(event_id), "order:7")
