"""F27: very many at one moment: workers that start, leases that are over, notifications."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection

from django_jobs import clock, store
from django_jobs.models import Attempt, Job, QueueControl, Worker
from django_jobs.store import notify
from django_jobs.store.workers import WorkerRecord, beat, register
from django_jobs.worker.sweep import Sweep
from tests.crowd import together
from tests.databases import Server
from tests.declared import plain
from tests.ears import Ear
from tests.factories import QUEUE, JobFactory, WorkerFactory
from tests.scenes import BUDGET, new_job, request

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS, THREADS = 100, 20  # each thread stands for five workers: a server has a hundred connections
LEASES = int(os.environ.get("SCENARIO_LEASES", "100000"))
REAPERS = 3
EXPIRED = """
WITH made AS (
    INSERT INTO django_jobs_job (id, job_type, queue_name, lane, priority, tenant, payload_version, payload_fingerprint,
        state, revision, generation, generation_started_at, unknown_count, transient_count, lost_count, exit_lost_count,
        silent_lost_count, free_count, unchanged_count, isolation, fence, attempt_id, lease_owner, lease_child,
        lease_expires_at, available_at, error_class, error_type, error_fingerprint, dead_reason, code_version, owner,
        correlation_id, subject, traceparent, created_at)
    SELECT gen_random_uuid(), 'tests.work', 'default', '', 0, '', 1, '', 'running', 1, 1, now(), 0, 0, 0, 0, 0, 0, 0, '',
        1, gen_random_uuid(), %(worker)s, 1, now() - interval '1 hour', now() - interval '2 hours', '', '', '', '',
        'test', '', '', '', '', now() - interval '2 hours'
    FROM generate_series(1, %(many)s)
    RETURNING id, attempt_id
), paid AS (
    INSERT INTO django_jobs_attempt (id, job_id, number, {columns})
    SELECT attempt_id, id, 1, {values} FROM made
)
SELECT count(*) FROM made
"""


def percentile(seconds: list[float], share: float) -> float:
    """Return the time that this share of them did not pass."""
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * share))]


def record(number: int) -> WorkerRecord:
    """What one of the workers tells about itself."""
    return WorkerRecord(
        worker_id=uuid.uuid4(),
        name=f"w{number}",
        host="host",
        pid=number,
        queues=[QUEUE],
        job_types=["tests.work"],
        kinds=["tests.work 1"],
        threads=1,
        processes=1,
        code_version="test",
    )


@pytest.mark.long
@pytest.mark.postgres  # on SQLite a hundred would wait for one write lock, which docs/how-to/use-sqlite.md advises against
def test_f27_hundred_workers_that_start_at_once_are_all_there(server: Server) -> None:
    """Each announces itself, beats, sleeps, claims and finishes; nobody fails, and each of 300 jobs runs once."""
    for _ in range(300):
        store.enqueue(new_job(), using="default")
    asked: list[float] = []

    def serve(first: int) -> None:
        for number in range(first, first + WORKERS // THREADS):
            mine = record(number)
            register(mine, using="default")
            assert beat(mine.worker_id, using="default")
            notify.announce_sleep([QUEUE], using="default")
            for _ in range(3):
                began = time.monotonic()
                claimed = store.claim(request(1, worker_id=mine.worker_id), using="default")
                asked.append(time.monotonic() - began)
                for job in claimed:
                    store.succeed(job, result=None, budget=BUDGET)

    errors = together(*[lambda first=first: serve(first) for first in range(0, WORKERS, WORKERS // THREADS)])

    assert errors == [None] * THREADS
    assert Worker.objects.filter(stopped_at__isnull=True).count() == WORKERS
    assert QueueControl.objects.filter(queue_name=QUEUE).count() <= 1
    assert Counter(Attempt.objects.values_list("job_id", flat=True)).most_common(1)[0][1] == 1
    print(f"\n{len(asked)} claims, p50 {percentile(asked, 0.5):.3f} s, p99 {percentile(asked, 0.99):.3f} s")
    assert percentile(asked, 0.99) < 5


def expired(many: int) -> None:
    """Store jobs whose lease was over an hour ago, while their worker beats."""
    owner = WorkerFactory(heartbeat_at=clock.now() + timedelta(hours=1))  # it beats throughout
    pattern = JobFactory(running=True, lease_owner=owner.pk, lease_expires_at=clock.now() - timedelta(hours=1))
    with connection.cursor() as cursor:
        columns = {
            field.column: getattr(pattern.attempts.get(), field.attname)
            for field in Attempt._meta.concrete_fields
            if field.column not in {"id", "job_id", "number"}
        }
        text = EXPIRED.format(columns=", ".join(columns), values=", ".join(f"%({name})s" for name in columns))
        cursor.execute(text, {**columns, "worker": owner.pk, "many": many - 1})
        cursor.execute("ANALYZE django_jobs_job, django_jobs_attempt")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.postgres
def test_f27_hundred_thousand_expired_leases_are_taken_back_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three reapers at once, in slices of a second each, while others claim: each lease is judged once, and all beat."""
    monkeypatch.setattr("tests.crowd.TIMEOUT", 1700.0)
    expired(LEASES)
    asked: list[float] = []
    over: list[bool] = []

    def reap() -> list[float]:
        sweep, turns = Sweep("default"), [time.monotonic()]
        end = False
        while not end:
            slice_ends = time.monotonic() + 1.0
            end = sweep.go_on(lambda until=slice_ends: time.monotonic() < until)
            turns.append(time.monotonic())
        over.append(True)
        return turns

    def claim() -> list[float]:
        while len(over) < REAPERS:
            began = time.monotonic()
            for job in store.claim(request(5), using="default"):
                store.succeed(job, result=None, budget=BUDGET)
            asked.append(time.monotonic() - began)
        return []

    began = time.monotonic()
    results = together(*[reap] * REAPERS, claim)
    took = time.monotonic() - began

    assert not [result for result in results if isinstance(result, Exception)], results
    lost = Attempt.objects.filter(outcome="lost")
    assert (lost.count(), lost.values("job_id").distinct().count()) == (LEASES, LEASES)
    assert set(lost.values_list("loss_cause", flat=True)) == {"expired"}
    assert not Job.objects.filter(state="running").exists()
    slices = [later - earlier for turns in results for earlier, later in pairwise(turns)]
    print(
        f"\n{LEASES} leases in {took:.0f} s ({LEASES / took:.0f}/s); longest slice {max(slices):.2f} s; "
        f"{len(asked)} claims of up to 5 with their ends, p99 {percentile(asked, 0.99):.3f} s"
    )
    assert max(slices) < 15, "between two slices a worker says that it lives, and after 20 s it would be silent"
    assert percentile(asked, 0.99) < 5


@pytest.mark.long
@pytest.mark.postgres
def test_f27_storm_of_notifications_blocks_nobody(
    server: Server, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty producers that notify with every commit: no error, every job stored, the server's queue of them is empty."""
    monkeypatch.setattr(notify, "PACE", 0.0)
    notify.announce_sleep([QUEUE], using="default")
    storm: list[Callable[[], object]] = [lambda: [plain.enqueue() for _ in range(25)]] * THREADS
    with Ear(database_url) as ear:
        results = together(*storm)
        heard = ear.heard()

        assert not [result for result in results if isinstance(result, Exception)]
        assert Job.objects.count() == THREADS * 25
        assert set(heard) == {QUEUE}
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notification_queue_usage()")
            assert cursor.fetchone() == (0.0,)

        monkeypatch.undo()
        notify._notified.clear()
        notify.announce_sleep([QUEUE], using="default")
        began = time.monotonic()
        together(*storm)
        # Threads that begin before another one's commit may each notify once: the pace counts from what was really sent.
        most = ((time.monotonic() - began) / notify.PACE + 1) * THREADS
        paced = ear.heard()

    print(f"\n{len(heard)} notifications of {THREADS * 25} commits; {len(paced)} of as many at the usual pace")
    assert 1 <= len(paced) <= min(most, len(heard) // 2)
