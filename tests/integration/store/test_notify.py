"""Who is notified, when, and of what: a sleeper, at the commit, of a queue's name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_jobs import clock, store
from django_jobs.domain.ids import uuid7
from django_jobs.models import QueueControl, Subscription
from django_jobs.store import notify
from django_jobs.store.notify import EVENTS, PACE, SLEEP_LASTS, announce_sleep, look, wake
from django_jobs.store.outbox import NewEvent, emit
from django_jobs.store.redispatching import discard_delivery, send_again
from tests.databases import Server
from tests.ears import Ear
from tests.factories import QUEUE, JobFactory
from tests.factories_outbox import DATA, EVENT_TYPE, DeliveryFactory, SubscriptionFactory
from tests.scenes import NOON, held, loss, new_job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ear(server: Server, transactional_db: None) -> Iterator[Ear]:
    """What workers would hear; nobody was notified lately."""
    notify._notified.clear()
    with Ear(server.url) as listening:
        yield listening
    notify._notified.clear()


def enqueue(**changes: Any) -> None:
    """Store a job that is due now."""
    assert store.enqueue(new_job(**changes), using="default") is not None


def much_later() -> None:
    """Let the pace of this process be over."""
    notify._notified.clear()


@pytest.mark.postgres
def test_r77_notification_names_a_queue_and_nothing_else(ear: Ear) -> None:
    """However large the arguments are, none of them is in it."""
    announce_sleep([QUEUE], using="default")

    enqueue(arguments='{"x": "' + "secret" * 20_000 + '"}')

    assert ear.heard() == [QUEUE]


@pytest.mark.postgres
def test_nobody_is_notified_while_nobody_sleeps(ear: Ear) -> None:
    """A sleep that is over, another queue's, or none at all: the enqueue sends nothing."""
    enqueue()
    with clock.override(lambda: NOON):
        announce_sleep([QUEUE], using="default")
    announce_sleep(["another"], using="default")
    enqueue()

    assert ear.heard() == []


@pytest.mark.postgres
def test_rollback_notifies_nobody_and_a_commit_once(ear: Ear) -> None:
    """A notification belongs to the transaction; many jobs of one make one, and one of a lost savepoint makes none."""
    announce_sleep([QUEUE], using="default")
    with transaction.atomic():
        enqueue()
        transaction.set_rollback(True)
    with transaction.atomic():
        with transaction.atomic():
            enqueue()
            transaction.set_rollback(True)
        rolled_back = ear.heard()
        many = transaction.savepoint()
        for _ in range(3):
            enqueue()
        transaction.savepoint_commit(many)

    assert rolled_back == []
    assert ear.heard() == [QUEUE]


@pytest.mark.postgres
def test_one_process_notifies_a_queue_ten_times_a_second_at_most(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 100 ms of a notification that was sent none follows; another queue has a pace of its own."""
    now = 1000.0
    monkeypatch.setattr(clock, "boot_seconds", lambda: now)
    announce_sleep([QUEUE, "other"], using="default")
    with transaction.atomic():
        enqueue()
        transaction.set_rollback(True)  # what was never sent sets no pace
    for _ in range(3):
        enqueue()
    enqueue(queue_name="other")
    now += PACE
    enqueue()

    assert ear.heard() == [QUEUE, "other", QUEUE]


@pytest.fixture
def routed() -> None:
    """A destination that is subscribed to the events of :func:`emitted`."""
    SubscriptionFactory()


def emitted(ordering_key: str = "") -> None:
    """Store one event."""
    new = NewEvent(
        event_id=uuid7(), type=EVENT_TYPE, version=1, source="s", subject="", tenant="", data=DATA, data_digest="",
        dataref="", ordering_key=ordering_key, job_id=None, attempt_id=None, fence=None, correlation_id="",
        causation_id="", traceparent="",
    )  # fmt: skip
    with transaction.atomic():
        emit(new, using="default")


@pytest.mark.postgres
@pytest.mark.usefixtures("routed")
def test_commit_with_events_wakes_dispatchers_that_sleep(ear: Ear) -> None:
    """At the commit, if one sleeps, and no more often than a queue of jobs; the event is not in it."""
    emitted()
    assert ear.heard() == [], "nobody sleeps"
    announce_sleep([EVENTS], using="default")
    emitted()
    emitted()
    assert ear.heard() == [EVENTS]
    much_later()
    with transaction.atomic():
        emitted()
        transaction.set_rollback(True)
    assert ear.heard() == []
    with override_settings(DJANGO_JOBS={"NOTIFY": False}):
        emitted()
    assert ear.heard() == []
    emitted()
    assert ear.heard() == [EVENTS]


@pytest.mark.postgres
@pytest.mark.usefixtures("routed")
def test_events_that_cannot_go_yet_wake_nobody(ear: Ear) -> None:
    """One that waits behind another of its key, and one without a route, are nothing to deliver."""
    announce_sleep([EVENTS], using="default")
    emitted(ordering_key="order:1")
    assert ear.heard() == [EVENTS]
    much_later()

    emitted(ordering_key="order:1")
    Subscription.objects.all().delete()
    emitted()

    assert ear.heard() == []


@pytest.mark.postgres
def test_decisions_about_deliveries_wake_dispatchers(ear: Ear) -> None:
    """An event that is sent again, and what a discarded delivery held back, need not wait for a look."""
    announce_sleep([EVENTS], using="default")
    delivery = DeliveryFactory(dead_lettered=True)

    send_again(delivery.event, ["crm"], using="default")
    assert ear.heard() == [EVENTS]
    discard_delivery(delivery.pk, revision=delivery.revision, using="default")
    assert ear.heard() == [EVENTS]


@pytest.mark.postgres
def test_bulk_enqueue_notifies_each_queue_once(ear: Ear) -> None:
    """However many jobs one call stores, in one statement or several; jobs for later notify nobody."""
    announce_sleep([QUEUE, "other"], using="default")

    store.enqueue_many([*(new_job() for _ in range(3)), new_job(queue_name="other")], using="default")
    assert ear.heard() == [QUEUE, "other"]
    much_later()
    store.enqueue_many([new_job(delay=timedelta(minutes=1)) for _ in range(3)], using="default")
    assert ear.heard() == []


@pytest.mark.postgres
def test_job_for_later_and_switched_off_notifications_wake_nobody(ear: Ear) -> None:
    """Nothing is due yet, or the project does not want it."""
    announce_sleep([QUEUE], using="default")

    enqueue(delay=timedelta(minutes=1))
    with override_settings(DJANGO_JOBS={"NOTIFY": False}):
        enqueue()
        assert wake([QUEUE], using="default") == []

    assert ear.heard() == []


@pytest.mark.postgres
def test_job_given_back_wakes_a_sleeper(ear: Ear) -> None:
    """What is released, or rescued to be due at once, notifies like a new job; a dead letter does not."""
    announce_sleep([QUEUE], using="default")

    assert store.release(held(JobFactory(running=True)), message="")
    assert ear.heard() == [QUEUE]
    assert store.rescue(held(JobFactory(running=True)), loss=loss())
    assert ear.heard() == [QUEUE]
    assert store.rescue(held(JobFactory(running=True)), loss=loss(delay=timedelta(minutes=1)))
    assert ear.heard() == []


def test_wake_goes_to_sleepers_alone(ear_or_none: Ear | None) -> None:
    """Of several queues those are notified for which somebody sleeps; SQLite has nobody to notify."""
    announce_sleep(["b"], using="default")

    expected = ["b"] if connection.vendor == "postgresql" else []
    assert wake(["a", "b"], using="default") == expected
    assert (ear_or_none.heard() if ear_or_none else []) == expected


@pytest.fixture
def ear_or_none(server: Server, request: pytest.FixtureRequest) -> Ear | None:
    """The ear, where there is something to hear."""
    return request.getfixturevalue("ear") if server.vendor == "postgresql" else None


def test_announced_sleep_is_written_again_only_before_it_lapses(transactional_db: None) -> None:
    """Many sleepers of one queue cost one write; each can trust the announcement for half of its time."""
    with clock.override(lambda: NOON):
        announce_sleep(["b", "a"], using="default")
    with clock.override(lambda: NOON + SLEEP_LASTS / 2 - timedelta(seconds=1)):
        announce_sleep(["a"], using="default")
    with clock.override(lambda: NOON + SLEEP_LASTS / 2):
        announce_sleep(["b"], using="default")

    found = dict(QueueControl.objects.values_list("queue_name", "idle_until"))
    assert found == {"a": NOON + SLEEP_LASTS, "b": NOON + SLEEP_LASTS * 1.5}


def test_sleeping_row_blocks_no_producer_and_no_sleeper_another(transactional_db: None) -> None:
    """An announcement that stands is not even locked: saying it again writes no row version."""
    announce_sleep([QUEUE], using="default")
    before = _version()
    announce_sleep([QUEUE], using="default")

    assert _version() == before


def _version() -> object:
    if connection.vendor != "postgresql":
        return QueueControl.objects.get().idle_until
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text, xmax::text FROM django_jobs_queuecontrol")
        return cursor.fetchone()


LOOKS: list[tuple[dict[str, Any], dict[str, Any], float | None]] = [
    ({}, {}, 0),
    ({"available_at": NOON + timedelta(milliseconds=400)}, {}, 0.4),
    ({"scheduled": True, "available_at": NOON + timedelta(seconds=90)}, {}, 90),
    ({"failed": True, "available_at": NOON}, {}, 0),
    ({"suspect": True, "available_at": NOON}, {}, 0),
    ({"queue_name": "unknown", "available_at": NOON}, {}, None),
    ({"queue_name": "unknown", "available_at": NOON}, {"everywhere": True}, 0),
    ({"scheduled": True, "lane": "!tests.other 1", "available_at": NOON}, {}, None),
    ({"running": True}, {}, None),
    ({"succeeded": True}, {"everywhere": True}, None),
]


@pytest.mark.parametrize(("job", "asked", "expected"), LOOKS)
def test_look_says_when_something_may_be_due(
    transactional_db: None, job: dict[str, Any], asked: dict[str, Any], expected: float | None
) -> None:
    """Ready, retrying, lonely and future jobs are seen; what nobody waits for is not."""
    JobFactory(**{"available_at": NOON, **job, "now": NOON})

    with clock.override(lambda: NOON):
        found = look([QUEUE, "empty"], **{"everywhere": False, **asked}, using="default")

    assert found.aside is ("lane" in job)
    assert found.seconds == (None if expected is None else pytest.approx(expected, abs=0.002))


def test_transaction_that_somebody_else_manages_is_not_followed(transactional_db: None) -> None:
    """With autocommit switched off Django cannot say when the commit comes: nothing is remembered, and nothing fails."""
    connection.set_autocommit(False)
    try:
        notify.note_notified(QUEUE, using="default")
        connection.commit()
    finally:
        connection.set_autocommit(True)

    assert notify._notified == {}
