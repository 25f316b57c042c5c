"""Gauges of batches and of serial keys: what is open, what a dead letter holds, and for how long."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_jobs import clock, job
from django_jobs.define import registry
from django_jobs.models import Job, SerialTurn
from django_jobs.observe.gauges import DatabaseGauges
from django_jobs.operate.status import status
from tests.factories import JobFactory
from tests.factories_pages import BatchFactory
from tests.integration.observe.test_gauges import series, values

pytestmark = pytest.mark.django_db


@pytest.fixture
def declared() -> Iterator[str]:
    """A registered type of queue "counted" and low priority, whose jobs have a serial key."""
    name = f"tests.serial_{uuid.uuid4().hex[:8]}"

    @job(type=name, queue_name="counted", priority=-5, serial_key="account:{n}")
    def move(n: int) -> None: ...

    yield name
    registry.unregister(name)


def head(key: str, **columns: object) -> Job:
    """Store a job that has the turn of its key."""
    found: Job = JobFactory(serial_key=key, **columns)
    SerialTurn.objects.create(key=key, job_id=found.pk)
    return found


def test_keys_are_blocked_by_dead_letters_that_hold_them(gauges: DatabaseGauges, declared: str) -> None:
    """Each key whose turn a dead letter keeps counts; skipped, resolved and running heads, and dead jobs behind, do not."""
    same = {"job_type": declared, "queue_name": "counted", "priority": -5}
    long_ago = clock.now() - timedelta(hours=3)
    head("a", dead_lettered=True, dead_at=long_ago, **same)
    head("b", dead_lettered=True, **same)
    head("c", dead_lettered=True, serial_skips=True, **same)
    head("d", discarded=True, **same)
    head("e", running=True, **same)
    JobFactory(dead_lettered=True, serial_key="e", **same)
    JobFactory(dead_lettered=True, **same)
    found = values(gauges)

    assert found[series("blocked_serial_keys", declared)] == 2
    assert found[series("oldest_blocked_serial_key_age_seconds", declared)] == pytest.approx(3 * 3600, abs=5)


def test_jobs_behind_another_are_told_apart(gauges: DatabaseGauges, declared: str) -> None:
    """Who waits for the turn of a key is no ready job, and the age of the oldest is a gauge of its own."""
    same = {"job_type": declared, "queue_name": "counted", "priority": -5, "queued": True, "serial_key": "a"}
    now = clock.now()
    JobFactory(lane="~~", available_at=now - timedelta(minutes=4), **same)
    JobFactory(lane="~~", available_at=now - timedelta(minutes=2), **same)
    JobFactory(lane="", available_at=now - timedelta(minutes=9), **same)
    JobFactory(lane="~", available_at=now - timedelta(minutes=1), **same)
    found = values(gauges)

    assert found[series("backlog_jobs", declared, state="behind")] == 2
    assert found[series("backlog_jobs", declared, state="queued")] == 2
    assert found[series("oldest_serial_wait_seconds", declared)] == pytest.approx(240, abs=5)
    assert found[series("oldest_job_age_seconds", declared)] == pytest.approx(540, abs=5)
    assert next(queue.waiting for queue in status(using="default").queues if queue.name == "counted") == 4


def test_serial_gauges_read_zero_before_the_first_job(gauges: DatabaseGauges, declared: str) -> None:
    """A declared type with a serial key has its series from the beginning, so that alerts find them."""
    found = values(gauges)

    names = ("blocked_serial_keys", "oldest_blocked_serial_key_age_seconds", "oldest_serial_wait_seconds")
    assert [found[series(name, declared)] for name in names] == [0, 0, 0]
    assert found[series("backlog_jobs", declared, state="behind")] == 0


def test_open_batches_are_counted_with_the_oldest(gauges: DatabaseGauges) -> None:
    """Open ones count, those whose owner was told of dead letters too, closed ones do not; no batch at all reads 0."""
    none = values(gauges)
    BatchFactory(created_at=clock.now() - timedelta(hours=2))
    BatchFactory(told_at=clock.now())
    BatchFactory(closed=True, created_at=clock.now() - timedelta(days=2))
    found = values(gauges)

    names = ("open_batches[]", "blocked_batches[]", "oldest_open_batch_age_seconds[]")
    assert [none[name] for name in names] == [0, 0, 0]
    assert [found[name] for name in names] == [2, 1, pytest.approx(7200, abs=5)]
