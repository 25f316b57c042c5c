"""Pruning beside producers, workers and other prunes: nobody waits, nobody sees an error, nothing is taken twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, models, transaction

from django_jobs import clock, store
from django_jobs.domain.events import Confirmed
from django_jobs.domain.identity import fingerprint
from django_jobs.domain.ids import first_id, uuid7
from django_jobs.domain.states import Pruning
from django_jobs.exceptions import RowBusyError
from django_jobs.models import (
    Attempt,
    Delivery,
    IdempotencyKey,
    Job,
    JobPayload,
    OutboxEvent,
    PrunedOrder,
    PrunedStretch,
    SideEffect,
)
from django_jobs.operate.delivery_lookup import DeliveryNotFoundError
from django_jobs.operate.prune import prune
from django_jobs.operate.redispatch import Redispatch
from django_jobs.operate.verify import verify
from django_jobs.store import prune as store_prune
from django_jobs.store.deliveries import claim_deliveries, mark_published
from django_jobs.store.outbox import NewEvent, emit
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.declared import charge
from tests.factories import JOB_TYPE
from tests.factories_outbox import (
    EVENT_TYPE,
    DeliveryFactory,
    OrderingKeyFactory,
    OutboxEventFactory,
    SubscriptionFactory,
)
from tests.integration.operate.stories import Story, later
from tests.integration.outbox.test_decisions import ADA
from tests.scenes import BUDGET, NOON, known, request

commits = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[2]


def finished_long_ago(many: int, *, days: float = 500) -> None:
    """Store finished jobs with one attempt each, old by every clock: their ids too."""
    moment = datetime.now(UTC) - timedelta(days=days)
    first = first_id(moment).int
    jobs, payloads, attempts = [], [], []
    for number in range(many):
        job = Job(
            id=uuid.UUID(int=first + number),
            job_type=JOB_TYPE,
            state="succeeded",
            payload_fingerprint=fingerprint("{}"),
            fence=1,
            **dict.fromkeys(("created_at", "generation_started_at", "available_at", "finished_at"), moment),
        )
        jobs.append(job)
        payloads.append(JobPayload(job_id=job.pk, arguments="{}"))
        attempts.append(
            Attempt(
                id=uuid.uuid4(),
                job_id=job.pk,
                number=1,
                generation=1,
                worker_id=uuid7(),
                worker_child=1,
                started_at=moment,
                finished_at=moment,
                lease_seconds=60,
                outcome="succeeded",
            )
        )
    Job.objects.bulk_create(jobs)
    JobPayload.objects.bulk_create(payloads)
    Attempt.objects.bulk_create(attempts)


def recorded(kind: str) -> int:
    """Return how many rows the records of this kind tell."""
    return PrunedStretch.objects.filter(kind=kind).aggregate(many=models.Sum("rows"))["many"] or 0


def pruning_that_pauses(monkeypatch: pytest.MonkeyPatch, statement: str) -> Callable[[Callable[[], None]], None]:
    """Return a run of pruning that stands still between a statement of its batch and the commit."""
    real = store_prune.run

    def prune_slowly(pause: Callable[[], None]) -> None:
        def run(name: str, params: Any, *, using: str) -> Any:
            rows = real(name, params, using=using)
            if name == statement:
                pause()
            return rows

        monkeypatch.setattr(store_prune, "run", run)
        prune(using="default")

    return prune_slowly


def ended(**changes: Any) -> Story:
    """A job that succeeded after a charge."""
    story = Story(**changes).claim()
    story.effect(f"order:{uuid.uuid4()}").send().answer("confirmed")
    return story.succeed()


@commits
def test_several_prunes_at_once_take_everything_once(server: Server) -> None:
    """Three runs over the same rows: what they say adds up to what was there."""
    finished_long_ago(300)

    found = together(*[lambda: prune(using="default", batch=20)] * 3)

    assert [item for item in found if isinstance(item, Exception)] == []
    rest = prune(using="default")
    assert sum(item.content for item in found) + rest.content == 300 == recorded("content")
    assert sum(item.jobs for item in found) + rest.jobs == 300 == recorded("jobs")
    assert Job.objects.count() == Attempt.objects.count() == JobPayload.objects.count() == 0
    assert not verify(using="default").violated


@commits
@pytest.mark.parametrize("ttl", [timedelta(days=700), timedelta(hours=1)])
def test_producers_that_meet_the_pruning_of_their_keys_holders(server: Server, ttl: timedelta) -> None:
    """Each is answered as a duplicate while the key lives, else one of them makes the one new job; no error."""
    orders = range(40)
    for order in orders:
        charge.enqueue(order_id=order)
    now = clock.now()
    Job.objects.update(state="succeeded", finished_at=now)
    IdempotencyKey.objects.update(ttl_seconds=ttl.total_seconds())
    first = dict(IdempotencyKey.objects.values_list("key", "job_id"))

    with later(days=401):
        answers = together(
            lambda: prune(using="default", batch=3),
            lambda: [charge.enqueue(order_id=order) for order in orders],
            lambda: [charge.enqueue(order_id=order) for order in reversed(orders)],
        )
        prune(using="default")

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    given = [result for answer in answers[1:] for result in answer]
    if ttl > timedelta(days=1):
        assert {result.outcome for result in given} == {"duplicate"}
        assert {result.state for result in given} == {"succeeded"}
        assert {result.id for result in given} == set(first.values())
        assert Job.objects.count() == 0
    else:
        assert sum(result.created for result in given) == len(orders)
        assert Job.objects.filter(state="queued").count() == Job.objects.count() == len(orders)
    assert IdempotencyKey.objects.count() == len(orders)
    assert not verify(using="default").violated


@pytest.mark.postgres
@commits
def test_prune_waits_for_nobody(server: Server, database_url: str) -> None:
    """Rows that other sessions hold (a job, an effect, a key) are left for the next run; the others go at once."""
    by_job, by_effect, by_key, free = ended(), ended(), ended(key="order:1"), ended()
    with psycopg.connect(database_url) as other:
        other.execute("SELECT 1 FROM django_jobs_job WHERE id = %s FOR KEY SHARE", [by_job.job.pk])
        other.execute("SELECT 1 FROM django_jobs_sideeffect WHERE job_id = %s FOR NO KEY UPDATE", [by_effect.job.pk])
        other.execute("SELECT 1 FROM django_jobs_idempotencykey WHERE job_id = %s FOR UPDATE", [by_key.job.pk])
        with later(days=401):
            started = time.monotonic()
            found = prune(using="default")
            took = time.monotonic() - started

        assert took < 1
        assert (found.content, found.jobs, dict(found.kept)) == (2, 1, {"busy": 3})
        left = {by_job.job.pk, by_effect.job.pk, by_key.job.pk}
        assert set(Job.objects.values_list("pk", flat=True)) == left
        assert free.job.pk not in left
    with later(days=401):
        assert prune(using="default").jobs == 3
    assert not verify(using="default").violated


@pytest.mark.postgres
@commits
def test_adoption_that_commits_between_look_and_lock_is_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is asked again under the locks, on what was committed by then: the receipt is kept."""
    owner, adopter = ended(), Story(ago=timedelta(minutes=1)).claim()
    effect = SideEffect.objects.get()
    real = store_prune.look

    def look(*arguments: Any, **named: Any) -> Any:
        window = real(*arguments, **named)
        if window is not None and window.due and not adopter.job.adoptions.exists():
            adopter.adopt(effect)
        return window

    monkeypatch.setattr("django_jobs.operate.prune.look", look)
    with later(days=401):
        found = prune(using="default")

    assert (found.content, found.jobs) == (0, 0)
    assert Job.objects.filter(pk=owner.job.pk).exists()
    assert not verify(using="default").violated


@commits
def test_workers_and_producers_go_on_beside_an_open_batch(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that stands before its commit holds nothing that an enqueue, a claim or a success needs."""
    ended(key="order:1")

    def work() -> str:
        charge.enqueue(order_id=5)
        (claimed,) = store.claim(request(1, types=[known("tests.charge")]), using="default")
        store.succeed(claimed, result=None, budget=BUDGET)
        return str(Job.objects.get(pk=claimed.job_id).state)

    with later(days=40), meanwhile(pruning_that_pauses(monkeypatch, "prune/content")) as finish:
        if server.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '1s'")
            assert work() == "succeeded"
            finish()
        else:
            assert together(work, finish)[0] == "succeeded"  # SQLite has one writer: it waits for the end of the batch


@pytest.mark.postgres
@commits
def test_event_that_somebody_holds_is_left_with_all_behind_it(server: Server) -> None:
    """A person who sends an event again holds its row: it stays, and so do the later ones of its key; nobody waits."""
    OrderingKeyFactory(ordering_key="order:1", last_seq=3)
    events = [OutboxEventFactory(ordering_key="order:1", key_seq=n, routed_count=1) for n in (1, 2, 3)]
    deliveries = [DeliveryFactory(event=event, published=True) for event in events]
    free = DeliveryFactory(published=True)

    def hold(pause: Any) -> None:
        decision = Redispatch(deliveries[1].pk, using="default")
        with transaction.atomic():
            decision.lock()
            decision.act(ADA, uuid7())
            pause()

    with later(days=91), meanwhile(hold):
        started = time.monotonic()
        found = prune(using="default")
        took = time.monotonic() - started

    assert took < 1
    assert (found.events, dict(found.kept_events)) == (2, {"busy": 2})
    left = set(OutboxEvent.objects.values_list("pk", flat=True))
    assert left == {events[1].pk, events[2].pk}
    assert free.event_id not in left
    assert Delivery.objects.filter(event=events[1], redispatch=1, state="pending").exists()
    with later(days=91):
        assert dict(prune(using="default").kept_events) == {"undelivered": 1, "order": 1}


@pytest.mark.postgres
@commits
def test_event_that_is_sent_again_between_look_and_lock_stays(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is asked again under the lock: what has a new delivery by then is not taken."""
    delivery, real = DeliveryFactory(published=True), store_prune.look

    def look(*arguments: Any, **named: Any) -> Any:
        window = real(*arguments, **named)
        if window is not None and window.kind is Pruning.EVENTS and Delivery.objects.count() == 1:
            decision = Redispatch(delivery.pk, using="default")
            decision.submit(ADA, digest=decision.plan().digest)
        return window

    monkeypatch.setattr("django_jobs.operate.prune.look", look)
    with later(days=91):
        found = prune(using="default")

    assert (found.events, Delivery.objects.count(), OutboxEvent.objects.count()) == (0, 2, 1)
    assert not verify(using="default").violated


@commits
def test_whoever_sends_an_event_again_that_is_being_pruned_hears_that_it_is_gone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent without its event, and nothing is half there."""
    delivery = DeliveryFactory(published=True)
    decision = Redispatch(delivery.pk, using="default")
    digest = decision.plan().digest

    with later(days=91), meanwhile(pruning_that_pauses(monkeypatch, "prune/events")) as finish:
        answers = together(lambda: decision.submit(ADA, digest=digest), finish)

    assert isinstance(answers[0], DeliveryNotFoundError | RowBusyError)
    assert (OutboxEvent.objects.count(), Delivery.objects.count()) == (0, 0)


@commits
def test_producers_and_dispatchers_go_on_beside_an_open_batch_of_events(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing under the very key that is pruned, claiming and confirming wait for nothing that the batch holds."""
    OrderingKeyFactory(ordering_key="order:1", last_seq=1)
    DeliveryFactory(event=OutboxEventFactory(ordering_key="order:1", key_seq=1, routed_count=1), published=True)
    SubscriptionFactory()

    texts = ("subject", "tenant", "dataref", "correlation_id", "causation_id", "traceparent")
    second = NewEvent(
        event_id=uuid7(),
        type=EVENT_TYPE,
        version=1,
        source="urn:django:testproject",
        data="{}",
        data_digest=fingerprint("{}"),
        ordering_key="order:1",
        job_id=None,
        attempt_id=None,
        fence=None,
        **dict.fromkeys(texts, ""),
    )

    def work() -> set[uuid.UUID]:
        with transaction.atomic():
            emit(second, using="default")
        (claimed,) = claim_deliveries(
            "crm", [uuid.uuid4()], worker_id=uuid.uuid4(), lease=timedelta(seconds=40), using="default"
        )
        return mark_published([(claimed, Confirmed("ok"))], using="default")

    slowly = pruning_that_pauses(monkeypatch, "prune/events")
    with later(days=91), meanwhile(slowly) as finish:  # one time for all: a delivery is due when it was published
        if server.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '1s'")
            assert len(work()) == 1
            finish()
        else:
            assert len(together(work, finish)[0]) == 1  # SQLite has one writer: it waits for the end of the batch

    assert OutboxEvent.objects.get().key_seq == 2
    assert not verify(using="default").violated


@commits
def test_several_prunes_of_events_at_once_take_everything_once(server: Server) -> None:
    """Three runs over the events of few keys: each event is recorded once, and every key's beginning is known."""
    for key in ("a", "b", "c"):
        OrderingKeyFactory(ordering_key=key, last_seq=40)
        for number in range(1, 41):
            DeliveryFactory(event=OutboxEventFactory(ordering_key=key, key_seq=number, routed_count=1), published=True)

    def run() -> Any:
        return prune(using="default", batch=7)

    with later(days=91):
        found = together(run, run, run)
        assert [item for item in found if isinstance(item, Exception)] == []
        assert not verify(using="default").violated
        rest = run()

    assert sum(item.events for item in found) + rest.events == 120 == recorded("events")
    assert set(PrunedOrder.objects.values_list("ordering_key", "last_seq")) == {("a", 40), ("b", 40), ("c", 40)}
    assert not verify(using="default").violated


@pytest.mark.postgres
@commits
def test_frozen_prune_holds_its_rows_for_seconds_only(server: Server) -> None:
    """The server ends a batch that stands still, as if its host had vanished."""
    with transaction.atomic(), connection.cursor() as cursor:
        store_prune.run("prune/begin", {}, using="default")
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        idle = cursor.fetchone()[0]
        cursor.execute("SHOW lock_timeout")
        assert (idle, cursor.fetchone()[0]) == ("5s", "1s")
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone()[0] == "0"


@commits
def test_kill_9_in_the_middle_loses_nothing_and_counts_nothing_twice(server: Server, database_url: str) -> None:
    """A program that dies between batches leaves whole ones; the next run takes the rest."""
    many = 1500
    finished_long_ago(many)
    command = [sys.executable, "manage.py", "jobs", "prune", "--batch", "1"]
    environment = {**os.environ, "DATABASE_URL": database_url, "PYTHONWARNINGS": "ignore"}
    program = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 200  # to start takes long on a busy machine
        while PrunedStretch.objects.count() < 20 and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert program.wait(timeout=0.05) is None
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
    done = recorded("content")

    assert 0 < done < many
    assert JobPayload.objects.count() == many - done
    assert not verify(using="default").violated
    found = prune(using="default")
    assert (found.content, found.jobs) == (many - done, many)
    assert recorded("content") == recorded("jobs") == many
    assert not verify(using="default").violated


@pytest.mark.parametrize(
    ("sqlstate", "text", "is_busy"),
    [
        ("55P03", "canceling statement due to lock timeout", True),
        ("40P01", "deadlock detected", True),
        ("", "database is locked", True),
        ("57P01", "terminating connection", False),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_only_somebody_elses_lock_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, sqlstate: str, text: str, is_busy: bool
) -> None:
    """A batch that somebody holds rows of is left for later; a database that fails is an error."""

    class FromServerError(Exception):
        """What the driver raises."""

    def fail(name: str, params: Any, *, using: str) -> Any:
        error = OperationalError(text)
        error.__cause__ = FromServerError()
        error.__cause__.sqlstate = sqlstate  # type: ignore[attr-defined]
        raise error

    window = store_prune.Window(kind=Pruning.KEYS, after=store_prune.START, last=store_prune.START, due=(), kept={})
    limits = store_prune.Limits(**dict.fromkeys((field.name for field in fields(store_prune.Limits)), NOON))
    monkeypatch.setattr(store_prune, "run", fail)

    with contextlib.nullcontext() if is_busy else pytest.raises(OperationalError, match=text):
        assert store_prune.take(window, limits, only=[], limit=1, using="default") is None
