"""A transaction that is completing a job, and everybody else meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, transaction

from django_jobs import store
from django_jobs.domain.states import LossCause
from django_jobs.exceptions import LeaseLostError
from django_jobs.store.completion import lock_for_completion, read_back
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.factories import JobFactory, WorkerFactory
from tests.scenes import BUDGET, held, loss

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def _completing(proof: store.Held) -> Callable[[Callable[[], None]], None]:
    def complete(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            lock_for_completion(proof, idle=timedelta(seconds=15))
            pause()
            store.succeed(proof, result=None, budget=BUDGET)

    return complete


def _fail_instead_of_waiting() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")


@pytest.mark.parametrize("cause", list(LossCause))
def test_rescue_steps_over_a_job_that_is_completing(server: Server, cause: LossCause) -> None:
    """The reaper does not wait: the holder is about to commit, and then there is nothing to take."""
    from django_jobs import clock

    worker = WorkerFactory(silent=cause is LossCause.SILENT)
    late = clock.now() - timedelta(minutes=5)
    job = JobFactory(running=True, lease_owner=worker.pk, lease_expires_at=late)
    proof = held(job)
    _fail_instead_of_waiting()
    with meanwhile(_completing(proof)) as finish:
        assert store.rescue(proof, loss=loss(cause)) is False
        finish()

    job.refresh_from_db()
    assert (job.state, job.attempts.get().outcome) == ("succeeded", "succeeded")


def test_release_steps_over_a_job_that_is_completing(server: Server) -> None:
    """A worker that stops does not take back what another of its threads is about to commit."""
    job = JobFactory(running=True)
    proof = held(job)
    _fail_instead_of_waiting()
    with meanwhile(_completing(proof)):
        assert store.release(proof, message="stopping") is False

    job.refresh_from_db()
    assert job.state == "succeeded"


def test_read_back_waits_for_the_commit(server: Server) -> None:
    """While the first connection may still commit, the question is not answered; then the answer is final."""
    job = JobFactory(running=True)
    proof = held(job)
    with meanwhile(_completing(proof)) as finish, connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")
        with pytest.raises(Exception, match="lock timeout"):
            read_back(proof)
        cursor.execute("RESET lock_timeout")
        finish()
        truth = read_back(proof)

    assert (truth.outcome, truth.owns) == ("succeeded", False)


def test_completion_that_was_overtaken_is_refused_at_its_first_statement(server: Server, database_url: str) -> None:
    """It waits for the rescuer's row and then finds that the job is not its own any more; no row was written."""
    job = JobFactory(running=True)
    proof = held(job)

    def rescue(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            assert store.rescue(proof, loss=loss()) is True
            pause()

    def complete() -> None:
        with transaction.atomic():
            lock_for_completion(proof, idle=timedelta(seconds=15))

    with meanwhile(rescue) as finish:
        results = together(complete, lambda: (_wait_for_a_waiter(database_url), finish()))

    assert isinstance(results[0], LeaseLostError)
    assert results[1] == (None, None)
    job.refresh_from_db()
    assert job.state == "queued"


def _wait_for_a_waiter(url: str) -> None:
    """Return when a session of this database waits for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline = time.monotonic() + 10
    with psycopg.connect(url, autocommit=True) as other:
        while not other.execute(waiting).fetchone():
            assert time.monotonic() < deadline, "nobody waits"
