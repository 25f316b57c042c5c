"""Correct handlers of every kind pass the whole matrix: nothing is told of a handler that has no bug."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_jobs import Confirmed, Event, JobContext, Rejected, effect, event_type, job, publish, subscribe
from django_jobs.define import events
from django_jobs.define.registry import unregister
from django_jobs.domain.effects import Reconciliation, Verdict
from django_jobs.effects import adapter
from django_jobs.testing import CrashMatrix, FakeDownstream, JobsClock, JobsKit
from testproject.shop.models import JournalEntry, Order
from tests.integration.testing.conftest import Declare

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TYPE = "kit.order.shipped"
PARTNER = {
    "partner": {
        "PUBLISHER": "django_jobs.outbox.publishers.webhook.WebhookPublisher",
        "URL": "https://partner.invalid/hook",
        "SECRETS": ["whsec_" + "A" * 32],
        "EVENTS": [f"{TYPE}:1"],
    }
}


@pytest.fixture
def no_keys(jobs_clock: JobsClock) -> FakeDownstream:
    """A provider that honours no keys, and can be asked."""
    return FakeDownstream(now=jobs_clock.now, keys=False)


@pytest.fixture
def transfer(no_keys: FakeDownstream) -> Iterator[Any]:
    """An operation there, which asks what became of an unclear request."""

    @effect("kit.transfer", dedupe="none", settle=timedelta(minutes=1))
    def transfer(call: Any, *, order_id: int) -> Any:
        answer = no_keys.send("transfer", key=call.key, body={"order_id": order_id})
        return Confirmed(answer.body["id"]) if answer.ok else Rejected("declined")

    @transfer.reconcile
    def find(call: Any, *, order_id: int) -> Any:
        answer = no_keys.find("transfer", key=call.key)
        return Reconciliation(Verdict.SUCCEEDED, provider_ref=answer.body["id"]) if answer.ok else Verdict.NOT_FOUND

    yield transfer
    adapter._declared.pop("kit.transfer", None)


@pytest.fixture
def shipped(settings: Any) -> Iterator[None]:
    """An event, a handler that publishes it, a subscriber, and a partner outside who wants it too."""
    settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "DESTINATIONS": PARTNER}
    event_type(TYPE, version=1, fields={"order_id": int})

    @job(type="kit.ship", takes_context=True, key="order:{order_id}")
    def ship(context: JobContext, order_id: int) -> None:
        with context.complete():
            Group.objects.create(name=f"shipped {order_id}")
            publish(TYPE, {"order_id": order_id}, version=1)

    @subscribe(TYPE, version=1, type="kit.hear_shipped")
    def hear(event: Event) -> None:
        Group.objects.create(name=f"heard {event.data['order_id']}")

    yield
    unregister("kit.ship")
    unregister("kit.hear_shipped")
    events._types.pop((TYPE, 1), None)


@pytest.fixture
def kit(shipped: None, opened: str, jobs_clock: JobsClock) -> Iterator[JobsKit]:
    """The kit, entered when all of this is declared."""
    with JobsKit(clock=jobs_clock) as kit:
        yield kit


def test_a_provider_without_keys_passes(
    jobs: JobsKit, no_keys: FakeDownstream, transfer: Any, declare: Declare
) -> None:
    """Whoever can ask needs no key; where the answer is late, a person may be asked."""

    def pay(context: JobContext, order_id: int) -> None:
        context.effect("transfer", transfer, key=f"order:{order_id}", order_id=order_id)
        with context.complete():
            Group.objects.create(name="paid")

    handler = declare(pay, takes_context=True, key="order:{order_id}")
    report = CrashMatrix(jobs, no_keys).check(handler=handler, payload={"order_id": 7}, expect=1, may_review=True)

    assert "effect.after_call" in report.points
    assert "FAILED" not in report.table


def test_rows_with_times_and_references_pass(
    jobs: JobsKit, no_keys: FakeDownstream, transfer: Any, declare: Declare
) -> None:
    """An order that is marked as paid, its receipt, and a job for each line of it: no value of theirs is called bad."""
    order = Order.objects.create(number="A1", customer="ada", amount=100, card="x")

    def note(order_id: int, text: str) -> None:
        JournalEntry.objects.create(order_id=order_id, text=f"{text} {JournalEntry.objects.count()}")

    noted = declare(note)

    def settle(context: JobContext, order_id: int) -> None:
        paid = context.effect("transfer", transfer, key=f"order:{order_id}", order_id=order_id)
        with context.complete():
            Order.objects.get(pk=order_id).mark_paid(paid.provider_ref)
            for text in ("line", "line"):
                noted.enqueue(order_id=order_id, text=text)

    handler = declare(settle, takes_context=True, key="order:{order_id}")
    report = CrashMatrix(jobs, no_keys).check(
        handler=handler, payload={"order_id": order.pk}, expect=1, may_review=True
    )

    assert "FAILED" not in report.table


def test_a_publisher_of_events_passes(kit: JobsKit) -> None:
    """A crash in the middle of a delivery included: the next dispatcher takes it over when its lease is over."""
    kit.fake_receiver("partner")

    report = CrashMatrix(kit).check(handler="kit.ship", payload={"order_id": 7}, rows=written)

    assert {"dispatch.after_claim", "dispatch.after_publish", "dispatch.after_commit"} <= set(report.points)


def test_a_subscriber_passes(kit: JobsKit) -> None:
    """A job that comes of an event is stored once, however often the event is delivered."""

    def shipping() -> None:
        with transaction.atomic():
            publish(TYPE, {"order_id": 7}, version=1)

    report = CrashMatrix(kit).check(handler="kit.hear_shipped", start=shipping, rows=written)

    assert report.kinds == ("kill", "lost_commit", "zombie", "redeliver")
    assert "handler.after" in report.points


def written() -> list[str]:
    """What the handlers wrote."""
    return sorted(Group.objects.values_list("name", flat=True))
