"""Pruning beside producers, workers and other prunes: nobody waits, nobody sees an error, nothing is taken twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, models, transaction

from django_jobs import clock, store
from django_jobs.domain.identity import fingerprint
from django_jobs.domain.ids import first_id, uuid7
from django_jobs.domain.states import Pruning
from django_jobs.models import Attempt, IdempotencyKey, Job, JobPayload, PrunedStretch, SideEffect
from django_jobs.operate.prune import prune
from django_jobs.operate.verify import verify
from django_jobs.store import prune as store_prune
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.declared import charge
from tests.factories import JOB_TYPE
from tests.integration.operate.stories import Story, later
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
    real = store_prune.run

    def prune_slowly(pause: Any) -> None:
        def run(name: str, params: Any, *, using: str) -> Any:
            rows = real(name, params, using=using)
            if name == "prune/content":
                pause()
            return rows

        monkeypatch.setattr(store_prune, "run", run)
        prune(using="default")

    def work() -> str:
        charge.enqueue(order_id=5)
        (claimed,) = store.claim(request(1, types=[known("tests.charge")]), using="default")
        store.succeed(claimed, result=None, budget=BUDGET)
        return str(Job.objects.get(pk=claimed.job_id).state)

    with later(days=40), meanwhile(prune_slowly) as finish:
        if server.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '1s'")
            assert work() == "succeeded"
            finish()
        else:
            assert together(work, finish)[0] == "succeeded"  # SQLite has one writer: it waits for the end of the batch


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
