"""A worker that serves every queue but some."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_jobs.models import Job
from django_jobs.worker.claiming import Claimer
from tests.factories import JobFactory
from tests.integration.worker.conftest import JOB_TYPE, Declare, claimer

pytestmark = pytest.mark.django_db(transaction=True)


def without(*queues: str) -> Claimer:
    """Return what claims in every other queue."""
    return Claimer(replace(claimer().config, excluded=queues))


def waiting(queue: str) -> Job:
    """Store a due job in a queue that no type declares."""
    return JobFactory(job_type=JOB_TYPE, queued=True, queue_name=queue)


def test_excluded_queues_are_left_to_others(declare: Declare) -> None:
    """What waits in them is neither claimed, nor looked for, nor a reason to stay when the rest is done."""
    declare(lambda: None)
    waiting("slow")
    mine = waiting("mail")
    one = without("slow", "nowhere")
    assert [attempt.job_id for attempt in one.take(5, 0)] == [mine.pk]
    assert (one.take(5, 1), one.seconds_to_next(), one.is_nothing_left()) == ([], None, True)


def test_queue_that_appears_later_is_served(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a poll's time a worker without some queues has found a new one, as a worker of all does."""
    declare(lambda: None)
    now = [1000.0]
    monkeypatch.setattr("django_jobs.clock.boot_seconds", lambda: now[0])
    one = without("slow")
    assert one.seconds_to_next() is None
    waiting("slow")
    job = waiting("new")
    now[0] += one.config.poll
    due = one.seconds_to_next()
    assert due is not None
    assert due <= 0
    assert [attempt.job_id for attempt in one.take(5, 0)] == [job.pk]


def test_everything_excluded_is_served_by_nobody(declare: Declare) -> None:
    """A worker that leaves out each queue there is does nothing, and is done at once."""
    declare(lambda: None)
    waiting("default")
    one = without("default")
    assert (one.take(5, 0), one.is_nothing_left()) == ([], True)
