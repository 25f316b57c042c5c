"""A full queue refuses producers outside of jobs, before anything is stored; everybody else passes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_jobs import clock
from django_jobs.enqueue import backpressure as room
from django_jobs.enqueue.inside import InsideJob, current
from django_jobs.exceptions import IdempotencyConflictError, QueueFullError
from django_jobs.models import IdempotencyKey, Job
from tests.databases import Server
from tests.declared import TTL, charge, news, plain
from tests.factories import JobFactory
from tests.scenes import NOON, Told

CAPACITY = 3
SECOND = timedelta(seconds=1)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> Any:
        return self.now


@pytest.fixture(autouse=True)
def moving() -> Iterator[Clock]:
    """Three jobs may wait in the default queue, and the time stands still until the test moves it."""
    time = Clock()
    with override_settings(DJANGO_JOBS={"QUEUES": {"default": {"capacity": CAPACITY}}}), clock.override(time):
        yield time


def _refused(call: Any) -> QueueFullError:
    before = set(Job.objects.values_list("pk", flat=True))
    with pytest.raises(QueueFullError) as caught:
        call()
    assert set(Job.objects.values_list("pk", flat=True)) == before
    return caught.value


def test_f19_full_queue_refuses_before_anything_is_stored(database: Server) -> None:
    """One cheap look per second, none meanwhile; the error names the queue, its bound and when to come back."""
    JobFactory.create_batch(CAPACITY)
    with CaptureQueriesContext(connection) as queries, Told() as told, pytest.raises(QueueFullError) as caught:
        plain.enqueue()
    with CaptureQueriesContext(connection) as later, pytest.raises(QueueFullError):
        plain.enqueue()

    assert (len(queries), len(later)) == (1, 0)
    assert "INSERT" not in queries[0]["sql"]
    assert "'default'" in str(caught.value)
    assert "capacity is 3" in str(caught.value)
    assert caught.value.retry_after == timedelta(seconds=6)  # a tenth of the minute that the jobs have waited
    assert [(refused["queue_name"], refused["count"]) for refused in told.named("enqueue.refused")] == [("default", 1)]
    assert Job.objects.count() == CAPACITY


def test_queue_with_room_takes_a_job(database: Server) -> None:
    """The last place is filled, and a queue without a bound is not even looked at."""
    JobFactory.create_batch(CAPACITY - 1)
    assert plain.enqueue().created
    with CaptureQueriesContext(connection) as queries:
        news.enqueue()

    assert all("count(*)" not in query["sql"] for query in queries)


@pytest.mark.django_db(transaction=True)
def test_refusal_leaves_the_caller_s_transaction_usable(server: Server) -> None:
    """What the caller stores before and after it is committed."""
    JobFactory.create_batch(CAPACITY)
    with transaction.atomic():
        news.enqueue()
        _refused(lambda: plain.enqueue())
        _refused(lambda: plain.enqueue_many([{"number": 1}]))
        news.enqueue()

    assert Job.objects.filter(queue_name="mail").count() == 2


@pytest.mark.parametrize(
    ("trait", "counts"),
    [
        ({}, True),
        ({"scheduled": True}, True),
        ({"failed": True}, True),
        ({"suspect": True}, True),
        ({"running": True}, False),
        ({"succeeded": True}, False),
        ({"dead_lettered": True}, False),
        ({"discarded": True}, False),
        ({"cancelled": True}, False),
        ({"queue_name": "mail"}, False),
    ],
    ids=str,
)
def test_what_waits_is_what_counts(database: Server, trait: dict[str, Any], counts: bool) -> None:
    """Jobs that wait for a worker fill a queue; those that run, are over or wait for a human do not."""
    JobFactory.create_batch(CAPACITY, **trait)

    if counts:
        _refused(lambda: plain.enqueue())
    else:
        assert plain.enqueue().created


def test_depth_is_looked_at_once_per_second(database: Server, moving: Clock) -> None:
    """Within a second the last look counts, whatever happened meanwhile; then the next one does."""
    for _ in range(CAPACITY + 2):
        assert plain.enqueue().created  # the look found an empty queue
    moving.now += SECOND
    _refused(lambda: plain.enqueue())
    Job.objects.all().delete()
    _refused(lambda: plain.enqueue())
    moving.now += SECOND
    assert plain.enqueue().created
    moving.now -= timedelta(days=1)  # a clock that was set back must not make a look last for a day
    JobFactory.create_batch(CAPACITY)
    _refused(lambda: plain.enqueue())


def test_f19_overshoot_is_what_producers_store_in_a_second(
    database: Server, moving: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four processes with a look each: at most what they store between two looks is above the capacity, and no more."""
    producers, rate = [room._Samples() for _ in range(4)], 5

    def second() -> int:
        before = Job.objects.count()
        for samples in producers:  # the worst case: all look before anybody stores
            samples.depth("default", limit=CAPACITY + 1, using="default")
        for samples in producers * rate:
            monkeypatch.setattr(room, "_samples", samples)
            try:
                plain.enqueue()
            except QueueFullError:
                continue
        moving.now += SECOND
        return Job.objects.count() - before

    assert [second(), second(), second()] == [len(producers) * rate, 0, 0]


def test_live_key_is_answered_by_a_full_queue(database: Server, moving: Clock) -> None:
    """A producer that repeats itself stores nothing, so it gets its answer; only what needs a new job is refused."""
    first = charge.enqueue(order_id=1)
    done = charge.enqueue(order_id=2)
    Job.objects.filter(pk=done.id).update(state="succeeded", finished_at=NOON)
    JobFactory.create_batch(CAPACITY)
    moving.now += SECOND

    assert charge.enqueue(order_id=1).id == first.id
    assert charge.enqueue(order_id=2).outcome == "duplicate"
    with pytest.raises(IdempotencyConflictError):
        charge.enqueue(order_id=1, amount=2)
    _refused(lambda: charge.enqueue(order_id=3))
    moving.now += TTL
    _refused(lambda: charge.enqueue(order_id=2))  # its key has expired: it would be a new job
    assert IdempotencyKey.objects.count() == 2


def test_many_are_all_stored_or_all_refused(database: Server, moving: Clock) -> None:
    """They need room for each row that is new; rows that live keys answer need none."""
    charge.enqueue(order_id=1)
    moving.now += SECOND
    _refused(lambda: charge.enqueue_many([{"order_id": number} for number in (1, 2, 3, 4)]))
    answered = charge.enqueue_many([{"order_id": number} for number in (1, 1, 2, 3)])
    assert [result.outcome for result in answered] == ["duplicate", "duplicate", "created", "created"]
    moving.now += SECOND
    _refused(lambda: charge.enqueue_many([{"order_id": number} for number in (1, 2, 3, 4)]))
    again = charge.enqueue_many([{"order_id": number} for number in (3, 2, 1)])
    assert {result.outcome for result in again} == {"duplicate"}


def test_call_that_never_fits_says_so(database: Server) -> None:
    """Waiting cannot help a call that alone is above the capacity: there is no time to come back at."""
    error = _refused(lambda: plain.enqueue_many({"number": number} for number in range(CAPACITY + 1)))

    assert "smaller parts" in str(error)
    assert error.retry_after is None
    assert len(plain.enqueue_many({"number": number} for number in range(CAPACITY))) == CAPACITY


def test_handler_is_never_refused(database: Server) -> None:
    """Follow-up work of a running job is stored and counted; refusing it would hold back what empties the queues."""
    JobFactory.create_batch(CAPACITY)
    here = InsideJob(job_id=uuid.uuid4(), correlation_id="", traceparent="", commits_with_success=True)
    token = current.set(here)
    try:
        with Told() as told:
            assert plain.enqueue().created
            assert all(result.created for result in plain.enqueue_many([{"number": 1}, {"number": 2}]))
    finally:
        current.reset(token)

    assert [fields["count"] for fields in told.named("enqueue.exempt")] == [1, 2]


@pytest.mark.parametrize(
    ("waited", "seconds"),
    [(timedelta(0), 1), (timedelta(seconds=10), 1), (timedelta(seconds=100), 10), (timedelta(hours=2), 60)],
)
def test_time_to_come_back_follows_the_wait(database: Server, waited: timedelta, seconds: int) -> None:
    """A tenth of how long the oldest job has been due, from a second to a minute."""
    JobFactory.create_batch(CAPACITY - 1, available_at=NOON)
    JobFactory(available_at=NOON - waited)

    assert _refused(lambda: plain.enqueue()).retry_after == timedelta(seconds=seconds)


def test_jobs_that_are_not_due_yet_make_nobody_wait_long(database: Server) -> None:
    """Scheduled jobs fill the queue, but tell nothing about its speed."""
    JobFactory.create_batch(CAPACITY, scheduled=True, available_at=NOON + timedelta(days=9))

    assert _refused(lambda: plain.enqueue()).retry_after == SECOND


def test_changed_settings_are_looked_at_at_once(database: Server) -> None:
    """A capacity that was raised lets producers in without delay."""
    JobFactory.create_batch(CAPACITY)
    _refused(lambda: plain.enqueue())

    with override_settings(DJANGO_JOBS={"QUEUES": {"default": {"capacity": CAPACITY + 1}}}):
        assert plain.enqueue().created


def test_forked_child_waits_for_no_lock_of_its_parent() -> None:
    """A web server that forks while a thread looks at a queue gets children that can look for themselves."""
    with room._samples._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if room._samples._lock.acquire(blocking=False) else 1)
    _, status = os.waitpid(child, 0)

    assert status == 0
