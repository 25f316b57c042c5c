"""Asking for the result of a job: read, waited for, refused."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from django_jobs import JobContext, job, job_result
from django_jobs.exceptions import (
    DefinitionError,
    JobFailedError,
    PermanentError,
    ResultGoneError,
    ResultTimeoutError,
    WouldWaitForeverError,
)
from django_jobs.models import Job
from django_jobs.testing import JobsKit

pytestmark = pytest.mark.django_db


@job(type="tests.results.add")
def add(a: int, b: int) -> int:
    """Return the sum."""
    return a + b


@job(type="tests.results.refuses")
def refuses() -> None:
    """End as a dead letter."""
    raise PermanentError("never")


@job(type="tests.results.tells", takes_context=True)
def tells(context: JobContext) -> None:
    """Tell progress, and look at it from outside."""
    context.progress(3, 10)
    seen.append(job_result(context.job_id))


@job(type="tests.results.waits", takes_context=True)
def waits(context: JobContext, other: uuid.UUID) -> None:
    """Wait for another job, which a handler must not."""
    job_result(other).get(timeout=1)


seen: list[Any] = []


def test_result_of_a_job_that_succeeded(jobs: JobsKit) -> None:
    """What the handler returned is read back, by the enqueue's answer and by the id."""
    enqueued = add.enqueue(a=1, b=2)
    before = enqueued.refresh()
    jobs.drain()

    assert (before.state, before.is_finished, before.attempts) == ("queued", False, 0)
    assert enqueued.get(timeout=1) == job_result(str(enqueued.id)).value() == 3
    assert before.refresh().is_finished
    assert async_to_sync(enqueued.aget)(timeout=1) == async_to_sync(before.aget)(timeout=1) == 3
    assert async_to_sync(enqueued.arefresh)() == async_to_sync(before.arefresh)() == enqueued.refresh()


def test_job_that_failed_for_good_raises_with_what_is_known(jobs: JobsKit) -> None:
    """A dead letter raises its reason and error; a cancelled job says so."""
    dead = refuses.enqueue()
    jobs.drain()

    with pytest.raises(JobFailedError, match=r"dead letter \(permanent\): .*PermanentError: never") as caught:
        dead.get(timeout=1)
    assert caught.value.result == dead.refresh()


def test_time_that_runs_out_says_so() -> None:
    """A job that has not ended in time goes on; the wait ends with a TimeoutError."""
    waiting = add.using(run_after=timedelta(hours=1)).enqueue(a=1, b=2)

    for timeout in (0, 0.05, timedelta(milliseconds=30)):
        with pytest.raises(ResultTimeoutError, match="it is scheduled"):
            waiting.get(timeout=timeout)
    with pytest.raises(TimeoutError):
        async_to_sync(waiting.aget)(timeout=0.03)


@pytest.mark.parametrize("timeout", [-1, True, "soon", float("nan")])
def test_timeout_that_is_none_is_refused(timeout: Any) -> None:
    """Only seconds from zero on, or a timedelta."""
    with pytest.raises(DefinitionError, match="timeout must be"):
        add.enqueue(a=1, b=2).get(timeout=timeout)


def test_progress_is_seen_from_outside(jobs: JobsKit) -> None:
    """What a running handler tells is there for everybody."""
    tells.enqueue()
    jobs.drain()
    assert (seen[-1].progress, seen[-1].progress_total, seen[-1].state) == (3, 10, "running")


def test_handler_does_not_wait_for_another_job(jobs: JobsKit) -> None:
    """It would hold a thread that the other job may need."""
    later = add.using(run_after=timedelta(hours=1)).enqueue(a=1, b=2)
    waiting = waits.enqueue(other=later.id)
    jobs.run_one()
    assert waiting.refresh().error_type.endswith("WouldWaitForeverError")


def test_wait_inside_a_transaction_is_refused(transactional_db: None) -> None:
    """A job that was enqueued in it cannot start before it ends."""
    with transaction.atomic():
        enqueued = add.enqueue(a=1, b=2)
        with pytest.raises(WouldWaitForeverError, match="A transaction is open"):
            enqueued.get(timeout=1)


def test_job_that_does_not_exist_is_gone() -> None:
    """An unknown id, one that was rolled back and one that was pruned have no result; text that is no id is refused."""
    with pytest.raises(ResultGoneError, match="never committed, or was pruned"):
        job_result(uuid.uuid4())
    for wrong in ("nothing", 7):
        with pytest.raises(DefinitionError, match="A job's id is a UUID"):
            job_result(wrong)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="no database 'nowhere'"):
        job_result(uuid.uuid4(), database="nowhere")


def test_result_that_was_removed_is_gone(jobs: JobsKit) -> None:
    """Retention takes the content of a job first; its success is still known."""
    enqueued = add.enqueue(a=1, b=2)
    jobs.drain()
    Job.objects.update(content_removed_at=jobs.clock.now())
    with pytest.raises(ResultGoneError, match="removed with its content"):
        enqueued.get(timeout=1)


def test_wait_ends_when_another_thread_has_run_the_job(transactional_db: None, jobs: JobsKit) -> None:
    """The one who waits sees the end that somebody else commits."""
    enqueued = add.enqueue(a=20, b=22)
    got: list[int] = []
    looked = threading.Event()

    def wait() -> None:
        try:
            looked.set()
            got.append(enqueued.get(timeout=30))
        finally:
            connection.close()

    thread = threading.Thread(target=wait)
    thread.start()
    assert looked.wait(10)
    jobs.drain()
    thread.join(30)
    assert got == [42]
