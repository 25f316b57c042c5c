"""Events in the kit: subscribers get them by the dispatcher's own code, and nothing is sent outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from django_jobs import Event, event_type, publish, subscribe
from django_jobs.define import events
from django_jobs.define.registry import unregister
from django_jobs.domain.events import Error, Nacked
from django_jobs.exceptions import KitError
from django_jobs.models import Delivery, DeliveryAttempt
from django_jobs.testing import JobsClock, JobsFaults, JobsKit

TYPE = "kit.order.paid"
PARTNER = {
    "partner": {
        "PUBLISHER": "django_jobs.outbox.publishers.webhook.WebhookPublisher",
        "URL": "https://partner.invalid/hook",
        "SECRETS": ["whsec_" + "A" * 32],
        "EVENTS": [f"{TYPE}:1"],
    }
}


@pytest.fixture
def heard() -> Iterator[list[Any]]:
    """What a subscriber of the test's event type was given."""
    found: list[Any] = []
    event_type(TYPE, version=1, fields={"order_id": int})

    @subscribe(TYPE, version=1, type="kit.hear")
    def hear(event: Event) -> None:
        found.append(event.data)

    yield found
    unregister("kit.hear")
    events._types.pop((TYPE, 1), None)


@pytest.fixture
def with_partner(heard: list[Any], settings: Any) -> None:
    """A destination outside that takes the events too."""
    settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "DESTINATIONS": PARTNER}


@pytest.fixture
def events_kit(with_partner: None, opened: str, jobs_clock: JobsClock) -> Iterator[JobsKit]:
    """The kit, entered when all of this is declared."""
    with JobsKit(clock=jobs_clock) as kit:
        yield kit


def paid(order_id: int) -> None:
    """Publish one event."""
    with transaction.atomic():
        publish(TYPE, {"order_id": order_id}, version=1)


def test_r68_subscribers_get_events(events_kit: JobsKit, heard: list[Any]) -> None:
    """R68: an event becomes the subscriber's job, which runs in the same run."""
    paid(7)

    report = events_kit.run_until_idle().assert_succeeded()

    assert heard == [{"order_id": 7}]
    assert [attempt.job_type for attempt in report.attempts] == ["kit.hear"]


def test_r68_dispatching_is_a_step_of_its_own(events_kit: JobsKit, heard: list[Any]) -> None:
    """R68: the subscriber's job is there after the delivery and has not run yet."""
    paid(7)

    events_kit.dispatch_events()

    events_kit.assert_enqueued("kit.hear", count=1)
    assert heard == []


def test_r68_nothing_is_sent_unless_asked(events_kit: JobsKit) -> None:
    """R68: the delivery to a destination outside stays where it is."""
    paid(7)

    events_kit.run_until_idle()

    assert Delivery.objects.get(destination="partner").state == "pending"
    assert not DeliveryAttempt.objects.filter(delivery__destination="partner").exists()


def test_r68_a_fake_receiver_gets_what_would_be_sent(events_kit: JobsKit) -> None:
    """R68: the events of a destination are recorded, with the version and the fields."""
    receiver = events_kit.fake_receiver("partner")
    paid(7)

    events_kit.run_until_idle()

    assert [(event.type, event.version, event.data) for event in receiver.events] == [(TYPE, 1, {"order_id": 7})]
    assert Delivery.objects.get(destination="partner").state == "published"


@pytest.mark.parametrize("answer", [Nacked("not now"), Error("out of order", status=503)])
def test_r68_a_refused_event_comes_again(events_kit: JobsKit, jobs_clock: JobsClock, answer: Any) -> None:
    """R68: the clock goes to the next try of a refused delivery, and to the end of an outage."""
    receiver = events_kit.fake_receiver("partner")
    receiver.answer_next(answer)
    paid(7)
    before = jobs_clock.now()

    events_kit.run_until_idle()

    assert (len(receiver.parcels), len(receiver.events)) == (2, 1)
    assert jobs_clock.now() > before


def test_r68_a_fake_receiver_has_a_name_that_exists(events_kit: JobsKit) -> None:
    """R68: a misspelt destination is an error, and not a test that can never see an event."""
    with pytest.raises(KitError, match="no destination 'partnr'"):
        events_kit.fake_receiver("partnr")


def test_r68_a_publish_that_is_taken_back_reaches_nobody(events_kit: JobsKit, heard: list[Any]) -> None:
    """R68: an event of a transaction that was rolled back is not delivered."""
    with transaction.atomic():
        publish(TYPE, {"order_id": 7}, version=1)
        transaction.set_rollback(True)

    assert len(events_kit.run_until_idle()) == 0
    assert heard == []


@pytest.mark.parametrize("point", ["dispatch.after_claim", "dispatch.after_publish", "dispatch.after_commit"])
def test_an_event_whose_dispatcher_died_is_delivered(events_kit: JobsKit, heard: list[Any], point: str) -> None:
    """Its lease is waited for, as a dispatcher of another worker does; a subscriber's job is there once."""
    receiver = events_kit.fake_receiver("partner")
    paid(7)

    with JobsFaults(events_kit) as faults:
        faults.crash_at(point)
        events_kit.run_until_idle().assert_succeeded()

    assert heard == [{"order_id": 7}]
    assert {event.data["order_id"] for event in receiver.events} == {7}
    assert set(Delivery.objects.values_list("state", flat=True)) == {"published"}
