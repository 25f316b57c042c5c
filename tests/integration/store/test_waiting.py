"""Promotion, expiry, and what a worker asks before it claims."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import clock, store
from django_jobs.domain.states import Alone
from django_jobs.models import Job, Worker
from django_jobs.store import workers
from tests.databases import Server
from tests.factories import JobFactory
from tests.scenes import NOON, Told, known

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("state", ["scheduled", "failed"])
def test_due_jobs_are_promoted_and_others_are_not(database: Server, state: str) -> None:
    """A job moves at its time, not before, in the queues that were asked for."""
    with clock.override(lambda: NOON):
        due = JobFactory(**{state: True}, available_at=NOON)
        JobFactory(**{state: True}, available_at=NOON + SECOND)
        JobFactory(**{state: True}, available_at=NOON, queue_name="mail")
        with Told() as told:
            assert store.promote(["default"], using="default") == [due.pk]

    assert Job.objects.filter(state="queued").get() == due
    assert told.named("job.promote") == [{"count": 1}]


def test_promotion_is_bounded_and_takes_the_oldest(database: Server) -> None:
    """A great many due jobs are promoted in parts, per queue, the longest waiting first."""
    for queue in ("a", "b"):
        for ago in (3, 2, 1):
            JobFactory(scheduled=True, available_at=clock.now() - ago * SECOND, queue_name=queue)
    oldest = set(Job.objects.order_by("available_at").values_list("pk", flat=True)[:4])

    moved = store.promote(["a", "b"], using="default", limit=2)

    assert len(moved) >= 2
    if connection.vendor == "postgresql":  # SQLite counts the limit over all queues
        assert set(moved) == oldest


def test_promotion_with_nothing_due_only_reads(database: Server) -> None:
    """An idle worker writes nothing."""
    JobFactory(scheduled=True)
    with CaptureQueriesContext(connection) as queries:
        assert store.promote(["default"], using="default") == []
    assert ["SELECT" in query["sql"] and "UPDATE" not in query["sql"] for query in queries] == [True]


@pytest.mark.parametrize("state", ["scheduled", "failed", "queued", "suspect"])
def test_useless_jobs_are_dead_lettered_as_expired(database: Server, state: str) -> None:
    """Whatever a job waits for, at the end of its usefulness it goes to a human, and telemetry says so."""
    with clock.override(lambda: NOON):
        job = JobFactory(**{state: True}, useful_until=NOON, owner="shop")
        JobFactory(**{state: True}, useful_until=NOON + SECOND)
        JobFactory(**{state: True})
        with Told() as told:
            rows = store.expire(using="default")

    groups = {"job_type": job.job_type, "queue_name": job.queue_name, "priority": job.priority}
    assert rows == [{"id": job.pk, **groups, "owner": "shop", "dead_reason": "expired"}]
    job.refresh_from_db()
    assert (job.state, job.dead_reason, job.dead_at) == ("dead_lettered", "expired", NOON)
    assert told.named("job.dead") == [{"job_id": job.pk, **groups, "reason": "expired"}]


def test_running_job_never_expires(database: Server) -> None:
    """What has started may end, even if nobody needs it any more."""
    JobFactory(running=True, useful_until=clock.now() - SECOND)

    assert store.expire(using="default") == []


def test_expiry_is_bounded(database: Server) -> None:
    """Many useless jobs are ended in parts."""
    for _ in range(3):
        JobFactory(useful_until=clock.now() - SECOND)

    assert len(store.expire(using="default", limit=2)) == 2
    assert len(store.expire(using="default", limit=2)) == 1
    assert store.expire(using="default", limit=2) == []


def test_next_due_is_the_earliest_waiting_time(database: Server) -> None:
    """It bounds how long an idle worker may sleep."""
    assert store.next_due(["default"], using="default") is None
    JobFactory(scheduled=True, available_at=NOON + 2 * SECOND)
    JobFactory(failed=True, available_at=NOON + SECOND)
    JobFactory(scheduled=True, available_at=NOON, queue_name="mail")
    JobFactory()

    assert store.next_due(["default"], using="default") == NOON + SECOND


def test_suspect_counts_only_if_this_worker_can_run_it(database: Server) -> None:
    """A suspect of an unknown type, version, queue or lane, or one that is not due or useless, makes nobody wait."""
    later = clock.now() + timedelta(hours=1)
    JobFactory()
    JobFactory(suspect=True, job_type="tests.other")
    JobFactory(suspect=True, payload_version=9)
    JobFactory(suspect=True, queue_name="mail")
    JobFactory(suspect=True, lane="payments-api")
    JobFactory(suspect=True, available_at=later)
    JobFactory(suspect=True, useful_until=clock.now() - SECOND)
    assert store.oldest_suspect(["default"], [known()], using="default") is Alone.NO

    JobFactory(suspect=True, useful_until=later)

    assert store.oldest_suspect(["default"], [known()], using="default") is Alone.CHILD


def test_oldest_suspect_says_how_much_room_is_needed(database: Server) -> None:
    """Of two that are due, the older one decides, whatever it needs."""
    with clock.override(lambda: NOON):
        JobFactory(suspect=True, available_at=NOON - 2 * SECOND)
        JobFactory(group_suspect=True, available_at=NOON - 3 * SECOND)

        assert store.oldest_suspect(["default"], [known()], using="default") is Alone.WORKER


def test_known_queues_are_all_in_which_something_waits(database: Server) -> None:
    """Ready, due later, failed and suspect jobs count; finished and running ones do not."""
    JobFactory(queue_name="ready")
    JobFactory(queue_name="ready")
    JobFactory(queue_name="later", scheduled=True)
    JobFactory(queue_name="again", failed=True)
    JobFactory(queue_name="alone", suspect=True)
    JobFactory(queue_name="done", succeeded=True)
    JobFactory(queue_name="busy", running=True)

    assert store.known_queues(using="default") == ["again", "alone", "later", "ready"]


def test_no_queue_is_known_when_nothing_waits(database: Server) -> None:
    """An empty database has no queues."""
    assert store.known_queues(using="default") == []


def test_worker_lives_from_register_to_stop(database: Server) -> None:
    """Its row tells when it began, that it lives, that it takes no more jobs, and that it has ended."""
    record = workers.WorkerRecord(
        worker_id=uuid.uuid4(),
        name="w" * 200,
        host="host",
        pid=1,
        queues=["default"],
        job_types=["a.b"],
        threads=4,
        processes=2,
        code_version="v1",
    )
    assert workers.beat(record.worker_id, using="default") is False
    with clock.override(lambda: NOON):
        workers.register(record, using="default")
    with clock.override(lambda: NOON + SECOND):
        assert workers.beat(record.worker_id, using="default") is True
        workers.note_stopping(record.worker_id, using="default")
    with clock.override(lambda: NOON + 2 * SECOND):
        workers.note_stopping(record.worker_id, using="default")
        workers.note_stopped(record.worker_id, using="default")

    row = Worker.objects.get()
    assert (row.name, row.queues, row.job_types) == ("w" * 128, '["default"]', '["a.b"]')
    times = (row.started_at, row.heartbeat_at, row.stopping_at, row.stopped_at)
    assert times == (NOON, NOON + SECOND, NOON + SECOND, NOON + 2 * SECOND)

    workers.register(record, using="default")
    row.refresh_from_db()
    assert (row.stopping_at, row.stopped_at) == (None, None)
