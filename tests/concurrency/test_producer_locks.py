"""Producers and completions do not wait for each other, and many producers of the same keys not crosswise."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_jobs import clock, store
from django_jobs.enqueue import bulk
from django_jobs.enqueue.inside import InsideJob, current
from django_jobs.models import IdempotencyKey, Job
from django_jobs.store.completion import lock_for_completion
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.declared import TTL, charge, plain
from tests.scenes import BUDGET, known, request

commits = pytest.mark.django_db(transaction=True)
Pause = Callable[[], None]


def _running(order_id: int = 1) -> store.Claimed:
    charge.enqueue(order_id=order_id)
    (claimed,) = store.claim(request(1, types=[known("tests.charge")]), using="default")
    return claimed


@contextmanager
def _no_waiting(seconds: int = 2) -> Iterator[None]:
    """Fail what waits: a lock for two seconds, or a statement for longer."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{seconds}s'; SET statement_timeout = '{seconds + 1}s'")
        yield
        cursor.execute("RESET lock_timeout; RESET statement_timeout")


def _complete(claimed: store.Claimed) -> None:
    with transaction.atomic():
        lock_for_completion(claimed, idle=timedelta(seconds=15))
        store.succeed(claimed, result=None, budget=BUDGET)


def _new(claimed: store.Claimed) -> None:
    charge.enqueue(order_id=2)


def _duplicate(claimed: store.Claimed) -> None:
    assert charge.enqueue(order_id=1).outcome == "duplicate"


def _conflict(claimed: store.Claimed) -> None:
    assert charge.enqueue_many([{"order_id": 1, "amount": 9}])[0].outcome == "conflict"


def _many(claimed: store.Claimed) -> None:
    outcomes = Counter(result.outcome for result in charge.enqueue_many({"order_id": n} for n in (3, 2, 1)))
    assert outcomes == {"created": 2, "duplicate": 1}


def _follow_up(claimed: store.Claimed) -> None:
    here = InsideJob(job_id=claimed.job_id, correlation_id="", traceparent="", commits_with_success=True)
    token = current.set(here)
    try:
        plain.enqueue()
    finally:
        current.reset(token)


@pytest.mark.postgres
@commits
@pytest.mark.parametrize("act", [_new, _duplicate, _conflict, _many, _follow_up])
def test_open_transaction_of_a_producer_delays_no_completion(
    server: Server, act: Callable[[store.Claimed], None]
) -> None:
    """Whatever a producer did and has not committed, the job that runs meanwhile can be completed."""
    claimed = _running()

    def produce(pause: Pause) -> None:
        with transaction.atomic():
            act(claimed)
            pause()

    with meanwhile(produce), _no_waiting():
        _complete(claimed)
        assert Job.objects.get(pk=claimed.job_id).state == "succeeded"


@pytest.mark.postgres
@commits
@pytest.mark.parametrize("act", [_new, _duplicate, _conflict, _many])
def test_open_completion_delays_no_producer(server: Server, act: Callable[[store.Claimed], None]) -> None:
    """While a completion holds its row and has not committed, producers of its key and of others go on."""
    claimed = _running()

    def complete(pause: Pause) -> None:
        with transaction.atomic():
            lock_for_completion(claimed, idle=timedelta(seconds=15))
            store.succeed(claimed, result=None, budget=BUDGET)
            pause()

    with meanwhile(complete), _no_waiting():
        act(claimed)
        assert Job.objects.get(pk=claimed.job_id).state == "running"

    assert Job.objects.get(pk=claimed.job_id).state == "succeeded"


def _expire_all() -> None:
    Job.objects.update(state="succeeded", finished_at=clock.now() - 2 * TTL)


@pytest.mark.postgres
@commits
@pytest.mark.parametrize("expired", [False, True], ids=["free", "expired"])
def test_many_take_keys_in_one_order(server: Server, database_url: str, expired: bool) -> None:
    """A call that waits at its first key has taken none of those behind it: whoever has them never waits crosswise."""
    if expired:
        charge.enqueue_many({"order_id": number} for number in range(10))
        _expire_all()

    def hold(pause: Pause) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            if expired:
                cursor.execute("SELECT 1 FROM django_jobs_idempotencykey WHERE key = 'order:0' FOR UPDATE")
            else:
                charge.enqueue(order_id=0)
            pause()

    def behind() -> None:
        with psycopg.connect(database_url) as other:
            while not other.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone():
                other.rollback()
            other.execute("SET lock_timeout = '1s'")
            if expired:
                other.execute("SELECT 1 FROM django_jobs_idempotencykey WHERE key <> 'order:0' FOR UPDATE NOWAIT")
            else:
                other.execute(
                    "INSERT INTO django_jobs_idempotencykey (job_id, scope, key, payload_version, payload_fingerprint,"
                    " ttl_seconds, created_at) SELECT gen_random_uuid(), '/tests.charge', 'order:' || n, 1, '', 60, now()"
                    " FROM generate_series(1, 9) n"
                )
            other.rollback()

    rows = [{"order_id": number} for number in reversed(range(10))]
    with meanwhile(hold) as finish:
        many, looked = together(lambda: charge.enqueue_many(rows), lambda: (behind(), finish()))

    assert looked == (None, None)
    wanted = {"created_after_expiry": 10} if expired else {"created": 9, "duplicate": 1}
    assert Counter(result.outcome for result in many) == wanted


@commits
def test_overlapping_calls_give_each_key_one_job(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four calls over free and expired keys, in other orders and parts: no deadlock, no error, one new job per key."""
    monkeypatch.setattr(bulk, "CHUNK", 7)  # parts that begin elsewhere in each call
    for _ in range(4):
        charge.enqueue_many({"order_id": number} for number in range(0, 40, 3))
        _expire_all()
        calls = [[*range(40)], [*range(39, -1, -1)], [*range(10, 40)], [*range(0, 40, 2), *range(1, 40, 2)]]
        results = together(
            *[
                lambda numbers=numbers: charge.enqueue_many({"order_id": number} for number in numbers)
                for numbers in calls
            ]
        )

        assert [result for result in results if isinstance(result, Exception)] == []
        made = Counter(result.outcome for call in results for result in call)
        assert (made["created"], made["created_after_expiry"]) == (26, 14)
        assert Job.objects.filter(state="queued").count() == IdempotencyKey.objects.count() == 40
        holders = _holders(zip(calls, results, strict=True))
        assert all(len(ids) == 1 for ids in holders.values())
        for model in (Job, IdempotencyKey):
            model.objects.all().delete()


def _holders(answered: Any) -> dict[int, set[uuid.UUID]]:
    holders: dict[int, set[uuid.UUID]] = {}
    for numbers, results in answered:
        for number, result in zip(numbers, results, strict=True):
            holders.setdefault(number, set()).add(result.id)
    return holders
