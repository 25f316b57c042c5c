"""Many claim at once: no job is given away twice, and nobody waits for a row that another holds."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter

import psycopg
import pytest
from django.db import connection
from django.db.models import Count

from django_jobs import store
from django_jobs.domain.states import LossCause
from django_jobs.exceptions import LeaseLostError
from django_jobs.models import Attempt, Job
from django_jobs.store import Claimed
from tests.crowd import programs, together
from tests.databases import Server
from tests.factories import JobFactory, WorkerFactory
from tests.scenes import BUDGET, held, loss, new_job, request

pytestmark = pytest.mark.django_db(transaction=True)

PROGRAM = "tests.concurrency.programs.work"


def _queue(count: int) -> None:
    for _ in range(count):
        store.enqueue(new_job(), using="default")


def _fail_instead_of_waiting() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")


def test_threads_never_get_one_job_twice(server: Server) -> None:
    """Eight threads empty a queue of sixty jobs; every job has one attempt, and no claim exceeds its room."""
    _queue(60)
    given: list[Claimed] = []

    def drain() -> None:
        while claimed := store.claim(request(4), using="default"):
            assert len(claimed) <= 4
            given.extend(claimed)

    errors = [result for result in together(*[drain] * 8) if result is not None]

    assert errors == []
    assert Counter(Counter(job.job_id for job in given).values()) == {1: 60}
    assert Attempt.objects.count() == 60
    assert Job.objects.filter(state="running", fence=1).count() == 60


@pytest.mark.postgres
@pytest.mark.slow
def test_r01_processes_never_run_one_job_twice(server: Server, database_url: str) -> None:
    """R01: eight processes, 2,000 jobs: 2,000 attempts, no job with two, none left, and several took part."""
    connection.cursor().execute(
        "INSERT INTO django_jobs_job (id, job_type, queue_name, lane, priority, tenant, payload_version,"
        " payload_fingerprint, state, revision, generation, generation_started_at, unknown_count, transient_count,"
        " lost_count, exit_lost_count, silent_lost_count, free_count, unchanged_count, isolation, fence, available_at,"
        " error_class, error_type, error_fingerprint, dead_reason, code_version, owner, correlation_id, subject,"
        " traceparent, created_at) SELECT gen_random_uuid(), 'tests.work', 'default', '', 0, '', 1, '', 'queued', 1, 1,"
        " now(), 0, 0, 0, 0, 0, 0, 0, '', 0, now(), '', '', '', '', '', '', '', '', '', now() FROM generate_series(1, 2000)"
    )

    programs(PROGRAM, [["work"]] * 8, database_url)

    _each_ran_once(2000, processes=4)


@pytest.mark.slow
@pytest.mark.sqlite
def test_r15_processes_on_sqlite_never_run_one_job_twice(server: Server, database_url: str) -> None:
    """R15: a database file, four processes, 500 jobs: 500 attempts, no duplicate, no crash."""
    from django.db import transaction

    with transaction.atomic():
        _queue(500)

    programs(PROGRAM, [["work"]] * 4, database_url)

    _each_ran_once(500, processes=1)


@pytest.mark.slow
def test_limit_is_never_exceeded_by_processes(server: Server, database_url: str) -> None:
    """Six processes with room for four each, a limit of three: never more than three run, all run once, none is stuck."""
    from django.db import transaction

    with transaction.atomic():
        for _ in range(150):
            store.enqueue(new_job(queue_name="reports"), using="default")

    outputs = programs(PROGRAM, [["crowd"]] * 6, database_url)

    assert max(int(output) for output in outputs) <= 3
    assert max(map(int, outputs)) >= 1
    _each_ran_once(150, processes=1)
    spans = Attempt.objects.values_list("started_at", "finished_at")
    moves = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    running = list(itertools.accumulate(change for _, change in moves))
    assert max(running) <= 3


def _each_ran_once(jobs: int, *, processes: int) -> None:
    assert Attempt.objects.filter(outcome="succeeded").count() == Attempt.objects.count() == jobs
    assert Job.objects.filter(state="succeeded", fence=1).count() == jobs
    assert not Attempt.objects.values("job_id").annotate(number=Count("id")).filter(number__gt=1).exists()
    assert Attempt.objects.values("worker_child").distinct().count() >= processes


@pytest.mark.postgres
def test_claim_steps_over_a_row_that_another_holds(server: Server, database_url: str) -> None:
    """It takes the next one at once, and the held one when it is free."""
    first, second = JobFactory(priority=1), JobFactory()
    _fail_instead_of_waiting()
    with psycopg.connect(database_url) as other:
        other.execute("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", [first.pk])
        assert [job.job_id for job in store.claim(request(2), using="default")] == [second.pk]
    assert [job.job_id for job in store.claim(request(2), using="default")] == [first.pk]


@pytest.mark.postgres
def test_claim_locks_no_more_than_it_takes(server: Server) -> None:
    """While one claim is not committed yet, another one finds the next job: the first holds its own row only."""
    from django.db import transaction

    JobFactory.create_batch(3)
    with transaction.atomic():
        (first,) = store.claim(request(1), using="default")
        (found,) = together(lambda: store.claim(request(1), using="default"))

    assert [job.job_id for job in found] != []
    assert found[0].job_id != first.job_id


@pytest.mark.postgres
def test_claim_takes_a_job_that_a_user_s_row_points_to(server: Server, database_url: str) -> None:
    """A foreign key check locks the job for its key only; that must not hide it from workers."""
    job = JobFactory()
    with psycopg.connect(database_url) as other:
        other.execute("SELECT 1 FROM django_jobs_job WHERE id = %s FOR KEY SHARE", [job.pk])
        assert [found.job_id for found in store.claim(request(1), using="default")] == [job.pk]


@pytest.mark.postgres
def test_promotion_and_expiry_step_over_held_rows(server: Server, database_url: str) -> None:
    """Maintenance never waits for an operator's or a worker's transaction."""
    from django_jobs import clock

    now = clock.now()
    due, useless = JobFactory(scheduled=True, available_at=now), JobFactory(useful_until=now)
    _fail_instead_of_waiting()
    with psycopg.connect(database_url) as other:
        other.execute("SELECT 1 FROM django_jobs_job FOR UPDATE")
        assert store.promote(["default"], using="default") == []
        assert store.expire(using="default") == []
    assert store.promote(["default"], using="default") == [due.pk]
    assert [row["id"] for row in store.expire(using="default")] == [useless.pk]


@pytest.mark.postgres
def test_f29_nobody_sees_a_job_before_its_commit(server: Server, database_url: str) -> None:
    """R48: a worker that polls while the producer's transaction is open gets nothing, and the job right after it."""
    from django.db import transaction

    with transaction.atomic():
        store.enqueue(new_job(), using="default")
        polls = together(lambda: [store.claim(request(1), using="default") for _ in range(20)])
        assert polls == [[[]] * 20]
    assert len(store.claim(request(1), using="default")) == 1


@pytest.mark.sqlite
def test_f29_nobody_sees_a_job_before_its_commit_on_sqlite(server: Server) -> None:
    """R48: the same; the worker does not even wait, because it only reads."""
    from django.db import transaction

    with transaction.atomic():
        store.enqueue(new_job(), using="default")
        polls = together(lambda: [store.claim(request(1), using="default") for _ in range(20)])
        assert polls == [[[]] * 20]
    assert len(store.claim(request(1), using="default")) == 1


def test_r07_two_reaper_threads_requeue_once(server: Server) -> None:
    """R07: both found the same abandoned job; one takes it back, the other changes nothing."""
    for _ in range(5):
        job = JobFactory(running=True, lease_owner=WorkerFactory(silent=True).pk)
        (found,) = store.abandoned(using="default")
        results = together(*[lambda found=found: store.rescue(found, loss=loss(LossCause.SILENT))] * 2)

        assert sorted(results) == [False, True]
        job.refresh_from_db()
        assert (job.state, job.revision, job.fence) == ("queued", 2, 1)
        assert [attempt.outcome for attempt in job.attempts.all()] == ["lost"]
        job.delete()


def test_r07_two_reaper_processes_requeue_once(server: Server, database_url: str) -> None:
    """R07: the same with two processes at a barrier, each with its own look."""
    job = JobFactory(running=True, lease_owner=WorkerFactory(silent=True).pk)

    outputs = programs(PROGRAM, [["reap"]] * 2, database_url)

    assert sorted(output.strip() for output in outputs) == ["0", "1"]
    job.refresh_from_db()
    assert (job.state, job.revision, job.lost_count) == ("queued", 2, 1)
    assert job.attempts.count() == 1


def test_holder_and_reaper_cannot_both_win(server: Server) -> None:
    """A success and a rescue at one moment: the job is either done, or lost and due, and the loser knows."""
    wins: Counter[str] = Counter()
    for _ in range(10):
        job = JobFactory(running=True)
        proof = held(job)
        success, rescued = together(
            lambda proof=proof: store.succeed(proof, result=None, budget=BUDGET),
            lambda proof=proof: store.rescue(proof, loss=loss()),
        )
        job.refresh_from_db()
        outcome = job.attempts.get().outcome
        if rescued is True:
            assert isinstance(success, LeaseLostError)
            assert (job.state, outcome) == ("queued", "lost")
        else:
            assert rescued is False
            assert (job.state, outcome, job.finished_at) == ("succeeded", "succeeded", success)
        wins[job.state] += 1
        job.delete()

    assert wins.total() == 10


def test_renewal_and_expiry_cannot_both_win(server: Server) -> None:
    """A lease that was renewed in time is not taken, and one that was taken is not renewed."""
    from datetime import timedelta

    from django_jobs import clock

    late = clock.now() - timedelta(minutes=5)
    for _ in range(10):
        job = JobFactory(running=True, lease_owner=WorkerFactory().pk, lease_expires_at=late)
        proof = held(job)
        renewed, rescued = together(
            lambda proof=proof: store.renew(
                proof, progress=1, total=None, lease=BUDGET, ends_at=clock.now() + timedelta(hours=1)
            ),
            lambda proof=proof: store.rescue(proof, loss=loss(LossCause.EXPIRED)),
        )
        job.refresh_from_db()
        if rescued is True:
            assert isinstance(renewed, LeaseLostError)
            assert job.state == "queued"
        else:
            assert rescued is False
            assert (job.state, job.lease_expires_at) == ("running", renewed)
        job.delete()


def test_one_attempt_id_is_given_to_one_job_only(server: Server) -> None:
    """A claimer that asks twice with the same ids, because a reply was lost, cannot hold two jobs under one id."""
    JobFactory()
    JobFactory()
    ids = [uuid.uuid4()]

    results = together(*[lambda: store.claim(request(1, attempt_ids=ids), using="default")] * 2)

    assert len([result for result in results if isinstance(result, list)]) == 1
    assert Attempt.objects.count() == Job.objects.filter(state="running").count() == 1
