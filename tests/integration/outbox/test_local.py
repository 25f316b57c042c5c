"""An event reaches its subscriber as a job, once."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_jobs import Event, clock
from django_jobs.models import Attempt, Delivery, DeliveryAttempt, Job, JobPayload, OutboxEvent
from django_jobs.operate.prune import prune
from django_jobs.outbox import local
from django_jobs.outbox.local import deliver
from django_jobs.outbox.losses import take_back_expired
from django_jobs.store.deliveries import ClaimedDelivery, claim_deliveries
from tests.integration.outbox.conftest import Clockwork, Subscribe, delivered, dispatcher, published
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


def claim() -> ClaimedDelivery:
    """Lease the one delivery that is due."""
    (found,) = claim_deliveries(
        "local:tests.receipt", [uuid.uuid4()], worker_id=uuid.uuid4(), lease=timedelta(seconds=40), using="default"
    )
    return found


def test_dispatcher_that_lost_its_lease_stores_no_job(subscriber: Subscribe, clockwork: Clockwork) -> None:
    """It has delivered nothing and is not recorded as if it had; whoever took over stores the job."""
    subscriber(lambda event: None)
    published()
    stale = claim()
    clockwork.forward(seconds=41)
    assert take_back_expired(using="default") == 1
    fresh = claim()

    assert deliver([stale], using="default") == []
    assert Job.objects.count() == 0
    assert deliver([fresh], using="default") == []
    assert (Job.objects.count(), Delivery.objects.get().state) == (1, "published")
    assert deliver([stale], using="default") == []
    assert Job.objects.count() == 1
    outcomes = DeliveryAttempt.objects.order_by("number").values_list("outcome", flat=True)
    assert list(outcomes) == ["lost", "confirmed"]


def test_dispatcher_that_is_late_delivers_what_nobody_else_took(subscriber: Subscribe, clockwork: Clockwork) -> None:
    """Taken back, and claimed by nobody since: its job is stored with the mark, and nobody delivers it again."""
    subscriber(lambda event: None)
    published()
    late = claim()
    clockwork.forward(seconds=41)
    assert take_back_expired(using="default") == 1

    assert deliver([late], using="default") == []

    assert (Job.objects.count(), Delivery.objects.get().state) == (1, "published")
    assert DeliveryAttempt.objects.get().outcome == "confirmed"
    delivered()
    assert Job.objects.count() == 1


def test_event_that_cannot_be_stored_blocks_no_other(subscriber: Subscribe, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the database refuses of one event is counted against that event; the rest of its batch is delivered."""
    subscriber(lambda event: None)
    bad, *good = [published(number) for number in range(4)]
    decide = local.decide

    def refuse(item: Any) -> Any:
        if str(bad) in item.key:
            raise DataError("value too long")
        return decide(item)

    monkeypatch.setattr(local, "decide", refuse)
    delivered()

    assert Delivery.objects.filter(state="published", event_id__in=good).count() == 3
    poison = Delivery.objects.get(event_id=bad)
    assert (poison.state, poison.failed_count, poison.last_error) == (
        "pending", 1, "The job could not be stored: DataError.",
    )  # fmt: skip


def test_database_that_is_away_costs_nothing(subscriber: Subscribe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deliveries are given back, and the next turn does them."""
    subscriber(lambda event: None)
    published()

    def fail(item: Any) -> Any:
        raise OperationalError("away")

    with monkeypatch.context() as patch:
        patch.setattr(local, "decide", fail)
        with pytest.raises(OperationalError):
            dispatcher().turn()
    assert Delivery.objects.values_list("state", "failed_count").get() == ("pending", 0)
    assert DeliveryAttempt.objects.get().outcome == "released"

    delivered()
    assert Job.objects.count() == 1


def test_idle_turn_is_one_statement(subscriber: Subscribe) -> None:
    """A dispatcher with nothing to do asks once."""
    subscriber(lambda event: None)
    one = dispatcher()
    one.turn()

    with CaptureQueriesContext(connection) as queries:
        assert one.turn() is None
    assert len(queries) == 1


def test_full_queue_takes_deliveries(subscriber: Subscribe, settings: Any) -> None:
    """Back-pressure is for producers: what was published is delivered."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"default": {"capacity": 1}}}
    subscriber(lambda event: None)
    for number in range(3):
        published(number)
    delivered()

    assert Job.objects.count() == 3


def test_id_answers_as_long_as_the_event_may_be_there(subscriber: Subscribe, clockwork: Clockwork) -> None:
    """Somebody put an old delivery back by hand: its key still stands, although its job's own time is long over."""
    subscriber(lambda event: None, key_ttl=timedelta(hours=1))
    published()
    delivered()
    run_one()
    clockwork.forward(days=60)
    prune(using="default")
    assert not JobPayload.objects.exists()
    Delivery.objects.update(state="pending", published_at=None, receipt="", available_at=clock.now())

    delivered()

    assert Delivery.objects.get().state == "published"
    assert Job.objects.count() == 1
