"""Many enqueues at once, and enqueues from async code."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs import clock
from django_jobs.enqueue import enqueue as room
from django_jobs.exceptions import PayloadError
from django_jobs.models import IdempotencyKey, Job
from tests.databases import Server
from tests.declared import TTL, charge, plain, strict
from tests.factories import JobFactory
from tests.scenes import NOON, Told


def test_results_come_in_the_order_of_the_rows(database: Server) -> None:
    """Whatever order the keys are taken in, each row gets its own answer."""
    results = charge.enqueue_many([{"order_id": number} for number in (3, 1, 2)])

    assert [result.outcome for result in results] == ["created"] * 3
    stored = {job.pk: job.subject for job in Job.objects.all()}
    assert [stored[result.id] for result in results] == ["order:3", "order:1", "order:2"]


def test_any_iterable_of_mappings_will_do(database: Server) -> None:
    """A generator is read once; an empty one costs nothing."""
    assert len(plain.enqueue_many({"number": number} for number in range(3))) == 3
    with CaptureQueriesContext(connection) as queries:
        assert plain.enqueue_many(iter([])) == []
    assert len(queries) == 0


def test_equal_keys_are_folded(database: Server) -> None:
    """The first row of a key decides, equal ones are its duplicates without asking the database, others conflict."""
    rows = [
        {"order_id": 1},
        {"order_id": 2},
        {"order_id": 1},
        {"order_id": 1, "amount": 9},
        {"order_id": 2},
    ]
    with CaptureQueriesContext(connection) as queries, Told() as told:
        results = charge.enqueue_many(rows)

    assert [result.outcome for result in results] == ["created", "created", "duplicate", "conflict", "duplicate"]
    assert [result.id for result in results[2:]] == [results[0].id, results[0].id, results[1].id]
    assert [result.created for result in results] == [True, True, False, False, False]
    assert Job.objects.count() == 2
    if connection.vendor == "postgresql":
        assert len(queries) == 4  # two jobs, and the conflict with its look at the holder
    assert len(told.named("enqueue.duplicate")) == 2


def test_what_a_key_decides_is_a_result(database: Server) -> None:
    """Neither a conflict nor a duplicate undoes the other rows, and expired keys are taken over as usual."""
    with clock.override(lambda: NOON):
        charge.enqueue(order_id=1)
        Job.objects.update(state="succeeded", finished_at=NOON - TTL)
        charge.enqueue(order_id=2)
    with clock.override(lambda: NOON + timedelta(seconds=1)):
        results = charge.enqueue_many([{"order_id": 1}, {"order_id": 2}, {"order_id": 2, "amount": 5}, {"order_id": 3}])

    outcomes = [result.outcome for result in results]
    assert outcomes == ["created_after_expiry", "duplicate", "conflict", "created"]


def test_rejected_duplicates_are_results_too(database: Server) -> None:
    """``on_duplicate="reject"`` raises for one job; of a thousand rows, one must not undo the others."""
    strict.enqueue(order_id=1)

    results = strict.enqueue_many([{"order_id": 1}, {"order_id": 2}])

    assert [result.outcome for result in results] == ["duplicate", "created"]


def test_duplicate_of_a_dead_letter_shows_in_its_row(database: Server) -> None:
    """The result tells the state of the job that holds the key."""
    first = strict.enqueue(order_id=1)
    Job.objects.update(state="dead_lettered", dead_reason="age", dead_at=clock.now())

    (result,) = strict.enqueue_many([{"order_id": 1}])

    assert (result.id, result.state, result.resolution) == (first.id, "dead_lettered", None)


def test_folded_duplicate_of_a_conflict_says_the_same(database: Server) -> None:
    """Rows that equal each other and differ from the stored one are all conflicts."""
    charge.enqueue(order_id=1)

    results = charge.enqueue_many([{"order_id": 1, "amount": 5}, {"order_id": 1, "amount": 5}, {"order_id": 1}])

    assert [result.outcome for result in results] == ["conflict", "conflict", "duplicate"]


@pytest.mark.django_db(transaction=True)
def test_rows_are_stored_all_or_none(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the database at the last row takes the others with it."""
    real, calls = room.store_job, []

    def breaking(new: Any, *, using: str) -> Any:
        calls.append(new)
        if len(calls) == 3:
            raise OperationalError("the server went away")
        return real(new, using=using)

    monkeypatch.setattr(room, "store_job", breaking)
    with pytest.raises(OperationalError):
        charge.enqueue_many([{"order_id": number} for number in range(3)])

    assert (Job.objects.count(), IdempotencyKey.objects.count()) == (0, 0)


@pytest.mark.django_db(transaction=True)
def test_rows_join_the_caller_s_transaction(server: Server) -> None:
    """They are gone with its rollback, and no savepoint is made for them."""
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        plain.enqueue_many([{"number": 1}, {"number": 2}])
        transaction.set_rollback(True)

    assert Job.objects.count() == 0
    assert [query["sql"] for query in queries if "SAVEPOINT" in query["sql"]] == []


def test_keys_are_taken_in_sorted_order(database: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls at once wait for each other at the first common key, never crosswise."""
    taken: list[str] = []
    real = room.store_job
    monkeypatch.setattr(room, "store_job", lambda new, using: taken.append(new.key) or real(new, using=using))

    charge.enqueue_many([{"order_id": number} for number in (5, 3, 9, 1)])

    assert taken == ["order:1", "order:3", "order:5", "order:9"]


def test_error_names_the_row(database: Server) -> None:
    """The first wrong row is told, counted from zero."""
    with pytest.raises(PayloadError, match=r"^Row 1: .*missing a required argument"):
        charge.enqueue_many([{"order_id": 1}, {}, {"order_id": object()}])


def test_async_enqueue_does_the_same(database: Server) -> None:
    """The awaitable twins return the same results and raise the same errors."""

    async def produce() -> list[str]:
        one = await charge.aenqueue(order_id=1)
        many = await charge.aenqueue_many([{"order_id": 1}, {"order_id": 2}])
        with pytest.raises(PayloadError):
            await charge.aenqueue()
        return [one.outcome, *(result.outcome for result in many)]

    assert async_to_sync(produce)() == ["created", "duplicate", "created"]


@pytest.mark.django_db(transaction=True)
def test_async_enqueue_works_under_a_plain_event_loop(server: Server) -> None:
    """Outside of Django's own bridges the work goes to a thread, with a connection of its own."""

    async def produce() -> str:
        from asgiref.sync import sync_to_async

        results = await asyncio.gather(*(charge.aenqueue(order_id=1) for _ in range(5)))
        await sync_to_async(lambda: connection.close())()
        return ",".join(sorted(result.outcome for result in results))

    assert asyncio.run(produce()) == "created,duplicate,duplicate,duplicate,duplicate"
    assert Job.objects.count() == 1


def test_bulk_of_running_jobs_changes_none_of_them(database: Server) -> None:
    """Other jobs are not touched by an enqueue."""
    job = JobFactory(running=True)
    before = Job.objects.filter(pk=job.pk).values().get()

    plain.enqueue_many([{"number": 1}])

    assert Job.objects.filter(pk=job.pk).values().get() == before
