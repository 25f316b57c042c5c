"""Many producers and one key: one job, no error, and nobody waits for the row of somebody else's job."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from django_jobs import clock, store
from django_jobs.models import DuplicateEnqueue, IdempotencyKey, Job
from django_jobs.store.keys import DUPLICATES_PER_HOUR
from tests.clusters import Cluster
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.declared import TTL, charge, plain
from tests.scenes import BUDGET, request

commits = pytest.mark.django_db(transaction=True)


def _outcomes(results: list[Any]) -> Counter[str]:
    assert [result for result in results if isinstance(result, Exception)] == []
    return Counter(result.outcome for result in results)


@commits
def test_fifty_producers_of_one_key_make_one_job(server: Server) -> None:
    """One creates it and forty-nine get its id; nobody sees an exception."""
    results = together(*[lambda: charge.enqueue(order_id=1)] * 50)

    assert _outcomes(results) == {"created": 1, "duplicate": 49}
    assert len({result.id for result in results}) == 1
    assert Job.objects.count() == IdempotencyKey.objects.count() == 1
    assert DuplicateEnqueue.objects.count() <= 49


@commits
def test_expired_key_is_taken_over_once(server: Server) -> None:
    """Twenty producers meet an expired key: one new job, and the others are its duplicates."""
    charge.enqueue(order_id=1)
    Job.objects.update(state="succeeded", finished_at=clock.now() - 2 * TTL)

    results = together(*[lambda: charge.enqueue(order_id=1)] * 20)

    assert _outcomes(results) == {"created_after_expiry": 1, "duplicate": 19}
    assert Job.objects.filter(state="queued").count() == 1


@commits
def test_bulk_in_opposite_orders_does_not_deadlock(server: Server) -> None:
    """Both sort their keys, so one waits for the other and every key has one job."""
    rows = [{"order_id": number} for number in range(10)]
    for _ in range(3):
        results = together(lambda: charge.enqueue_many(rows), lambda: charge.enqueue_many(rows[::-1]))
        assert [result for result in results if isinstance(result, Exception)] == []
        outcomes = Counter(answer.outcome for result in results for answer in result)
        assert outcomes["created"] == outcomes["duplicate"] == 10
        for model in (Job, IdempotencyKey):
            model.objects.all().delete()


@commits
def test_loser_waits_for_the_winner_and_takes_its_rollback(server: Server) -> None:
    """A key whose first producer rolled back is free: the second one creates the job."""

    def roll_back(pause: Any) -> None:
        with transaction.atomic():
            charge.enqueue(order_id=1)
            pause()
            transaction.set_rollback(True)

    with meanwhile(roll_back) as finish:
        results = together(lambda: charge.enqueue(order_id=1), finish)

    assert results[0].outcome == "created"
    assert Job.objects.get().pk == results[0].id


@pytest.mark.postgres
@commits
@pytest.mark.parametrize("lock", ["UPDATE", "NO KEY UPDATE"])
def test_duplicate_does_not_wait_for_the_job_s_row(server: Server, database_url: str, lock: str) -> None:
    """Another session holds the job, as a completion does: the producer has its answer at once."""
    first = charge.enqueue(order_id=1)
    with psycopg.connect(database_url) as other, connection.cursor() as cursor:
        other.execute(f"SELECT 1 FROM django_jobs_job WHERE id = %s FOR {lock}", [first.id])
        other.execute("SELECT 1 FROM django_jobs_idempotencykey FOR NO KEY UPDATE")
        other.execute("SELECT 1 FROM django_jobs_duplicateenqueue FOR UPDATE")
        cursor.execute("SET lock_timeout = '1s'")
        assert charge.enqueue(order_id=1).outcome == "duplicate"


@pytest.mark.postgres
@commits
def test_completion_does_not_wait_for_a_producer(server: Server) -> None:
    """A duplicate in a long transaction holds nothing that the worker needs; nor does another duplicate wait for it."""
    charge.enqueue(order_id=1)
    (claimed,) = store.claim(request(1, types=[_known()]), using="default")

    def produce(pause: Any) -> None:
        with transaction.atomic():
            assert charge.enqueue(order_id=1).outcome == "duplicate"
            pause()

    with meanwhile(produce), connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1s'")
        assert charge.enqueue(order_id=1).outcome == "duplicate"
        store.succeed(claimed, result=None, budget=BUDGET)

    assert Job.objects.get().state == "succeeded"


def _known() -> store.KnownType:
    return store.KnownType(job_type="tests.charge", payload_version=1, lease=BUDGET, code_version="test")


@pytest.mark.postgres
@commits
def test_repeatable_read_raises_the_database_s_own_error(server: Server, database_url: str) -> None:
    """A key that another transaction took after the snapshot is a serialization failure, which is the caller's to retry."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert Job.objects.count() == 0
        assert _outcomes(together(lambda: charge.enqueue(order_id=1))) == {"created": 1}
        with pytest.raises(OperationalError) as caught:
            charge.enqueue(order_id=1)
        transaction.set_rollback(True)

    assert isinstance(caught.value.__cause__, psycopg.errors.SerializationFailure)
    assert Job.objects.count() == 1


@pytest.mark.postgres
@commits
def test_repeatable_read_answers_from_its_snapshot(server: Server) -> None:
    """A key that was there before is an ordinary duplicate, and the transaction commits."""
    charge.enqueue(order_id=1)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert Job.objects.count() == 1
        assert charge.enqueue(order_id=1).outcome == "duplicate"
        assert charge.enqueue(order_id=2).outcome == "created"

    assert Job.objects.count() == 2


@pytest.mark.postgres
@commits
def test_read_only_transaction_gets_the_database_s_own_error(server: Server) -> None:
    """Also for a duplicate: the first statement of an enqueue writes."""
    charge.enqueue(order_id=1)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(DatabaseError, match="read-only transaction"):
            charge.enqueue(order_id=1)
        transaction.set_rollback(True)


@pytest.mark.sqlite
@commits
def test_producer_waits_for_the_write_lock_of_sqlite(server: Server) -> None:
    """Another transaction writes: the enqueue waits for its end and then succeeds, without an error."""

    def write(pause: Any) -> None:
        with transaction.atomic():
            plain.enqueue()
            pause()

    with meanwhile(write) as finish:
        results = together(*[lambda: charge.enqueue(order_id=1)] * 3, finish)

    assert _outcomes(results[:3]) == {"created": 1, "duplicate": 2}


def test_r42_a_thousand_duplicates_leave_no_error_in_the_server_log(own_server: Cluster) -> None:
    """R42: one key a thousand times: no exception, no ERROR line, one job, and the transaction stays usable."""
    log = own_server._data / "server.log"
    results = [charge.enqueue(order_id=1) for _ in range(500)]
    with transaction.atomic():
        results += [charge.enqueue(order_id=1) for _ in range(500)]
        results.append(charge.enqueue(order_id=2))

    assert _outcomes(results) == {"created": 2, "duplicate": 999}
    assert Job.objects.count() == 2
    assert DuplicateEnqueue.objects.count() == DUPLICATES_PER_HOUR
    assert "ERROR" not in log.read_text()
    with pytest.raises(Exception, match="no_such_table"), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM no_such_table")
    assert "ERROR" in log.read_text()  # the look would have seen one


@pytest.mark.postgres
@commits
def test_enqueue_takes_its_time_from_the_server(server: Server) -> None:
    """An enqueue without an injected clock takes its time from the server, inside the caller's transaction too."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        began = cursor.fetchone()[0]
        plain.enqueue()
        plain.enqueue()

    first, second = Job.objects.order_by("created_at").values_list("created_at", flat=True)
    assert began < first < second < began + timedelta(minutes=1)
