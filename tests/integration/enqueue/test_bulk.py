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
from django_jobs.enqueue import bulk as room
from django_jobs.exceptions import EnqueueContendedError, PayloadError
from django_jobs.models import DuplicateEnqueue, IdempotencyKey, Job, JobPayload
from tests.databases import Server
from tests.declared import TTL, charge, charge_v2, news, plain, strict
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
        assert len(queries) == 1
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
    real, calls = room.store_jobs, []

    def breaking(news: Any, *, using: str, now: Any = None) -> Any:
        calls.append(news)
        if len(calls) == 3:
            raise OperationalError("the server went away")
        return real(news, using=using)

    monkeypatch.setattr(room, "CHUNK", 1)
    monkeypatch.setattr(room, "store_jobs", breaking)
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
    taken: list[list[str]] = []
    real = room.store_jobs

    def seen(news: Any, *, using: str, now: Any = None) -> Any:
        taken.append([new.key for new in news])
        return real(news, using=using)

    monkeypatch.setattr(room, "CHUNK", 2)
    monkeypatch.setattr(room, "store_jobs", seen)
    charge.enqueue_many([{"order_id": number} for number in (5, 3, 9, 1)])

    assert taken == [["order:1", "order:3"], ["order:5", "order:9"]]


def _statements(call: Any) -> int:
    with CaptureQueriesContext(connection) as queries:
        call()
    return len([query for query in queries if query["sql"] not in {"BEGIN", "COMMIT"}])


def test_a_thousand_rows_are_one_statement(database: Server, vendor: str) -> None:
    """What rows cost is no round trip: not new ones, nor duplicates, nor those that take over expired keys."""
    rows = [{"order_id": number} for number in range(room.CHUNK)]
    step = 1 if vendor == "postgresql" else 4
    with clock.override(lambda: NOON):
        assert _statements(lambda: plain.enqueue_many({"number": number} for number in range(room.CHUNK))) == step
        assert (
            _statements(lambda: plain.enqueue_many({"number": number} for number in range(room.CHUNK + 1))) == 2 * step
        )
        assert _statements(lambda: charge.enqueue_many(rows)) == step
        assert _statements(lambda: charge.enqueue_many(rows)) == step + 2  # who holds the keys, and one record of it
        Job.objects.update(state="succeeded", finished_at=NOON)
    with clock.override(lambda: NOON + TTL):
        assert _statements(lambda: charge.enqueue_many(rows)) == 2 * step + 1

    assert DuplicateEnqueue.objects.count() == room.CHUNK
    assert IdempotencyKey.objects.count() == room.CHUNK
    assert JobPayload.objects.filter(previous_job_id__isnull=False).count() == room.CHUNK


def test_a_row_is_stored_as_by_a_single_enqueue(database: Server) -> None:
    """Both ways write the same columns, whatever the options are: only ids and the key differ."""
    options = [
        {},
        {"run_after": timedelta(minutes=5), "priority": 7, "queue_name": "mail", "tenant": "acme", "subject": "x"},
        {"run_after": NOON + timedelta(hours=1), "key": None},
    ]
    with clock.override(lambda: NOON):
        for changes in options:
            for declared in (charge, news, plain):
                if "key" in changes and declared is not charge:
                    continue
                arguments = {"order_id": "a"} if declared is charge else {}
                alone = declared.using(**changes).enqueue(**arguments).id
                written = _written(alone)
                IdempotencyKey.objects.all().delete()
                (result,) = declared.using(**changes).enqueue_many([arguments])
                assert _written(result.id) == written
                IdempotencyKey.objects.all().delete()


def _written(job_id: Any) -> list[dict[str, Any]]:
    found = []
    for model, name in ((Job, "id"), (JobPayload, "job_id"), (IdempotencyKey, "job_id")):
        for row in model.objects.filter(**{name: job_id}).values():
            del row[name]
            found.append(row)
    return found


def test_rows_of_a_key_that_differ_are_measured_by_its_holder(database: Server) -> None:
    """The first row need not be the one that agrees with the job; versions that differ cannot be compared."""
    first = charge.enqueue(order_id=1)
    with Told() as told:
        mixed = charge.enqueue_many([{"order_id": 1, "amount": amount} for amount in (5, 1, 5, 1)])
        other = charge_v2.enqueue_many([{"order_id": 1, "amount": amount} for amount in (1, 2)])

    assert [result.outcome for result in mixed] == ["conflict", "duplicate", "conflict", "duplicate"]
    assert [(result.outcome, result.version_differs) for result in other] == [("duplicate", True)] * 2
    assert {result.id for result in mixed + other} == {first.id}
    assert (len(told.named("enqueue.conflict")), len(told.named("enqueue.duplicate"))) == (2, 4)
    assert DuplicateEnqueue.objects.count() == 2  # one per call


def test_first_row_of_an_expired_key_takes_it_over(database: Server) -> None:
    """Rows after it are its duplicates or conflict with it, as if the key had been free."""
    with clock.override(lambda: NOON):
        charge.enqueue(order_id=1)
        Job.objects.update(state="succeeded", finished_at=NOON)
    with clock.override(lambda: NOON + TTL):
        results = charge.enqueue_many([{"order_id": 1, "amount": amount} for amount in (5, 1, 5)])

    assert [result.outcome for result in results] == ["created_after_expiry", "conflict", "duplicate"]
    assert IdempotencyKey.objects.get().job_id == results[0].id
    assert Job.objects.count() == 2


def test_owners_of_dead_letters_are_told_once_per_call(database: Server) -> None:
    """Each dead letter that answered rows is told of, however many rows it answered."""
    charge.enqueue_many([{"order_id": 1}, {"order_id": 2}, {"order_id": 3}])
    Job.objects.exclude(subject="order:3").update(state="dead_lettered", dead_reason="age", dead_at=clock.now())
    with Told() as told:
        charge.enqueue_many([{"order_id": number} for number in (1, 1, 2, 3)])
        charge.enqueue_many([{"order_id": 1}])

    alerts = told.named("owner.alert")
    assert len(alerts) == 2
    assert {(alert["reason"], alert["owner"]) for alert in alerts} == {("duplicate_of_dead", "billing")}


def test_key_that_somebody_else_took_over_meanwhile_is_a_duplicate(
    database: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stale look loses: an expired key is taken only from the job that it was read under."""
    winner = JobFactory()
    with clock.override(lambda: NOON):
        charge.enqueue(order_id=1)
        Job.objects.exclude(pk=winner.pk).update(state="succeeded", finished_at=NOON)
    real, looks = room.key_holders, []

    def stale(scope: str, keys: Any, *, using: str) -> Any:
        found = real(scope, keys, using=using)
        if not looks:
            fingerprint = found["order:1"].payload_fingerprint
            IdempotencyKey.objects.filter(key="order:1").update(job_id=winner.pk, payload_fingerprint=fingerprint)
        looks.append(found)
        return found

    monkeypatch.setattr(room, "key_holders", stale)
    with clock.override(lambda: NOON + TTL):
        results = charge.enqueue_many([{"order_id": 1}, {"order_id": 2}])

    assert [(result.outcome, result.id == winner.pk) for result in results] == [("duplicate", True), ("created", False)]
    assert len(looks) == 2


@pytest.mark.django_db(transaction=True)
def test_contended_key_undoes_the_other_rows(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are stored already go too: in a transaction of its own, and in the caller's, which cannot commit then."""
    charge.enqueue(order_id=1)
    monkeypatch.setattr(room, "key_holders", lambda scope, keys, using: {})

    with pytest.raises(EnqueueContendedError):
        charge.enqueue_many([{"order_id": 1}, {"order_id": 2}])
    with transaction.atomic(), pytest.raises(EnqueueContendedError):
        charge.enqueue_many([{"order_id": 1}, {"order_id": 2}])

    assert Job.objects.count() == 1


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
