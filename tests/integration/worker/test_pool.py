"""Threads that end although they must not."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from django_jobs.models import Attempt
from django_jobs.worker import pool as pool_room
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.execute import abandon, execute
from django_jobs.worker.pool import Pool
from tests.integration.worker.conftest import Declare, take, write
from tests.scenes import Told

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),  # what these tests do
]

Table = Callable[[], list[int]]
WAIT = 30.0  # seconds


class Ended:
    """Tells when an attempt has left the pool."""

    def __init__(self) -> None:
        self._ended = threading.Semaphore(0)

    def __call__(self) -> None:
        self._ended.release()

    def wait(self) -> None:
        """Wait for the next end."""
        assert self._ended.acquire(timeout=WAIT), "an attempt ended"


@pytest.fixture
def ended() -> Ended:
    """What the pool under test tells its ends to."""
    return Ended()


@pytest.fixture
def pool(transactional_db: None, ended: Ended) -> Iterator[Pool]:
    """A pool of one thread that runs attempts as a worker's does."""
    made = Pool(1, execute, abandon, ended)
    yield made
    made.stop(seconds=10)


class Deadly(queue.SimpleQueue[Any]):
    """A queue whose first reader is ended right after it got something, as by an exception raised from outside."""

    armed = True

    def get(self, *args: Any, **options: Any) -> Any:
        """Return what comes, but not to the first reader."""
        found = super().get(*args, **options)
        if self.armed:
            self.armed = False
            raise SystemExit
        return found


def test_thread_that_was_ended_is_replaced_and_runs_its_job_r28(
    declare: Declare, table: Table, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended before it began, the job runs in the new thread, in its first attempt."""
    declare(write).enqueue(n=1)
    attempt = take()
    with monkeypatch.context() as patch:
        patch.setattr(pool_room.queue, "SimpleQueue", Deadly)
        pool = Pool(1, execute, abandon, ended)
    killed = pool.threads[0]
    pool.submit(attempt)
    killed.join(timeout=WAIT)
    assert not killed.is_alive()

    with Told() as told:
        pool.replace_dead()

    ended.wait()
    assert told.named("thread.replaced") == [{"thread": killed.name}]
    assert pool.threads[0].is_alive()
    assert (pool.free, pool.running) == (1, [])
    assert table() == [1]
    assert Attempt.objects.get().outcome == "succeeded"
    pool.stop(seconds=10)


def test_attempt_whose_thread_was_ended_is_a_failure_r28(
    declare: Declare, table: Table, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle, the attempt fails at once instead of waiting for its lease, and the next job runs."""

    def dying(attempt: RunningAttempt) -> None:
        attempt.connection = connections["default"]
        raise SystemExit

    def dying_again(*_: object) -> None:
        raise SystemExit

    pool = Pool(1, dying, abandon, ended)
    killed = pool.threads[0]
    job = declare(write)
    job.enqueue(n=1)
    with monkeypatch.context() as patch:
        patch.setattr(pool_room.logger, "exception", dying_again)
        pool.submit(take())
        killed.join(timeout=WAIT)
    assert not killed.is_alive()
    assert len(pool.running) == 1

    pool.replace_dead()
    ended.wait()

    row = Attempt.objects.get()
    assert (row.outcome, row.error_class) == ("failed", "unknown")
    assert "thread" in row.message
    assert pool.free == 1
    pool._execute = execute
    job.enqueue(n=2)
    pool.submit(take())
    ended.wait()
    assert table() == [2]
    pool.stop(seconds=10)


def test_pool_that_stops_replaces_nobody(pool: Pool) -> None:
    """A thread that ends because the pool stops is no dead one."""
    pool.stop(seconds=10)

    pool.replace_dead()

    assert [thread.is_alive() for thread in pool.threads] == [False]
