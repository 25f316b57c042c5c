"""The caller's transaction decides whether a job exists."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from django_jobs.enqueue.inside import InsideJob, current
from django_jobs.exceptions import IdempotencyConflictError, OutsideCompletionError
from django_jobs.models import IdempotencyKey, Job
from django_jobs.store import NewJob
from tests.databases import Server
from tests.declared import charge, plain

commits = pytest.mark.django_db(transaction=True)


@pytest.fixture
def inside() -> Iterator[InsideJob]:
    """A handler that runs here."""
    here = InsideJob(job_id=uuid.uuid4(), correlation_id="", traceparent="00-11-22-01", commits_with_success=False)
    token = current.set(here)
    yield here
    current.reset(token)


@commits
def test_f29_rollback_leaves_no_job_r48(server: Server) -> None:
    """R48: job, payload and key go with the transaction that made them."""
    with transaction.atomic():
        charge.enqueue(order_id=1)
        transaction.set_rollback(True)
    assert (Job.objects.count(), IdempotencyKey.objects.count()) == (0, 0)
    assert charge.enqueue(order_id=1).outcome == "created"


@commits
def test_f29_rollback_to_a_savepoint_leaves_no_job_r48(server: Server) -> None:
    """R48: the outer transaction commits, and the job of the inner one is not there."""
    with transaction.atomic():
        kept = plain.enqueue()
        with transaction.atomic():
            plain.enqueue()
            transaction.set_rollback(True)

    assert Job.objects.get().pk == kept.id


@commits
def test_f29_enqueue_outside_of_a_transaction_commits_at_once_r48(server: Server) -> None:
    """R48: another connection sees the job as soon as the call has returned."""
    plain.enqueue()
    seen: list[int] = []

    def look() -> None:
        seen.append(Job.objects.count())
        connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(timeout=10)
    assert seen == [1]


@commits
def test_conflict_and_duplicate_leave_the_transaction_usable(server: Server) -> None:
    """Nothing that a key decides is an error for the database: the caller may go on and commit."""
    charge.enqueue(order_id=1)
    with transaction.atomic():
        assert charge.enqueue(order_id=1).outcome == "duplicate"
        with pytest.raises(IdempotencyConflictError):
            charge.enqueue(order_id=1, amount=2)
        assert charge.enqueue(order_id=2).outcome == "created"
    assert Job.objects.count() == 2


@commits
def test_enqueue_adds_no_savepoint(server: Server) -> None:
    """A savepoint per job would cost two round trips and a subtransaction."""
    from django.test.utils import CaptureQueriesContext

    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        charge.enqueue(order_id=1)
        charge.enqueue(order_id=1)

    assert [query["sql"] for query in queries if "SAVEPOINT" in query["sql"]] == []


@pytest.mark.postgres
@commits
def test_broken_transaction_stays_the_caller_s_error(server: Server) -> None:
    """In a transaction that already failed the enqueue fails as any other statement does."""
    with transaction.atomic(), connection.cursor() as cursor:
        with pytest.raises(DatabaseError, match="no_such_column"):
            cursor.execute("SELECT no_such_column FROM django_jobs_job")
        with pytest.raises(DatabaseError, match="transaction is aborted"):
            plain.enqueue()
        transaction.set_rollback(True)
    assert Job.objects.count() == 0


@commits
def test_savepoint_of_the_caller_survives_a_failed_enqueue(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the database is undone by the caller's own savepoint, and the rest commits."""
    from django_jobs.enqueue import bulk as room

    real = room.store_jobs

    def breaking(news: Sequence[NewJob], *, using: str, now: object = None) -> dict[uuid.UUID, str]:
        if news[0].key == "order:2":
            raise OperationalError("the server went away")
        return real(news, using=using)

    monkeypatch.setattr(room, "CHUNK", 1)
    monkeypatch.setattr(room, "store_jobs", breaking)
    with transaction.atomic():
        plain.enqueue()
        with pytest.raises(OperationalError), transaction.atomic():
            charge.enqueue_many([{"order_id": 1}, {"order_id": 2}])

    assert Job.objects.get().job_type == "tests.plain"


def test_block_of_a_test_case_is_no_transaction(database: Server) -> None:
    """The transaction that a test is wrapped into does not count, so code under test behaves as it does in production."""
    from django_jobs.enqueue.inside import in_transaction

    assert connection.in_atomic_block
    assert in_transaction(connection) is False
    with transaction.atomic():
        assert in_transaction(connection) is True
    assert plain.enqueue().outcome == "created"


def test_handler_may_not_enqueue_where_it_would_be_repeated(database: Server, inside: InsideJob) -> None:
    """Outside of complete(), step() or an atomic handler a crash would enqueue again."""
    with pytest.raises(OutsideCompletionError, match="detached=True"):
        plain.enqueue()
    with pytest.raises(OutsideCompletionError):
        plain.enqueue_many([{"number": 1}])
    assert Job.objects.count() == 0


def test_handler_enqueues_inside_its_completion(database: Server, inside: InsideJob) -> None:
    """Follow-up jobs carry the correlation and trace of the job that caused them."""
    inside.commits_with_success = True
    plain.enqueue()

    job = Job.objects.get()
    assert (job.correlation_id, job.traceparent) == (str(inside.job_id), "00-11-22-01")
    inside.correlation_id = "request-7"
    result = plain.enqueue()
    assert Job.objects.get(pk=result.id).correlation_id == "request-7"


def test_handler_may_enqueue_detached(database: Server, inside: InsideJob) -> None:
    """Who accepts at-least-once may enqueue anywhere."""
    assert plain.using(detached=True).enqueue().outcome == "created"
