"""What one job may cost on PostgreSQL: indexes to keep up, bytes of write-ahead log, and how its attempt is closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from django_jobs import store
from tests.clusters import Cluster
from tests.databases import Server
from tests.declared import charge
from tests.scenes import BUDGET, known, request

INDEXES = 10
WAL_BYTES = 3500
HOT_SHARE = 0.9
JOBS = 400
TABLES = ["django_jobs_job", "django_jobs_idempotencykey", "django_jobs_attempt"]


def _one(sql: str, *params: object) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql, list(params) or None)
        return cursor.fetchone()[0]


def _work(jobs: int, first: int, produce: Callable[[range], object]) -> None:
    """Enqueue, claim and complete jobs with a key, as a worker with one thread does: a commit for each step."""
    produce(range(first, first + jobs))
    types = [known("tests.charge")]
    for _ in range(jobs):
        (claimed,) = store.claim(request(1, types=types), using="default")
        store.succeed(claimed, result=None, budget=BUDGET)


def _singly(numbers: range) -> None:
    for number in numbers:
        charge.enqueue(order_id=number)


def _at_once(numbers: range) -> None:
    charge.enqueue_many({"order_id": number} for number in numbers)


@pytest.mark.postgres
def test_job_key_and_attempt_have_ten_indexes(database: Server) -> None:
    """Every index is written for every job: together no more than ten, and on each attempt two.

    Those of members and of serial keys are not: their conditions leave out each job that has neither.
    """
    sql = "SELECT count(*) FROM pg_indexes WHERE tablename = ANY (%s) AND indexdef NOT LIKE '%%batch_id IS NOT NULL%%'"
    sql += " AND indexname <> 'django_jobs_job_serial'"

    assert _one(sql, TABLES) <= INDEXES  # type: ignore[operator]
    assert _one(sql, ["django_jobs_attempt"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("produce", [_singly, _at_once])
def test_wal_of_a_job_is_bounded(
    own_server: Cluster, produce: Callable[[range], object], record_property: Callable[[str, object], None]
) -> None:
    """A job with a key, from its enqueue to its success, writes at most 3.5 kB of log, and closes its attempt in place.

    Measured without full-page images (they depend on checkpoints, not on us) and without autovacuum's own log.
    """
    with connection.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET autovacuum = off")
        cursor.execute("SELECT pg_reload_conf()")
    _work(50, 0, produce)  # tables and indexes have their first pages
    began, changed, hot = (_one("SELECT pg_current_wal_insert_lsn()"), *_updates())

    _work(JOBS, 50, produce)

    per_job = float(_one("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", began)) / JOBS  # type: ignore[arg-type]
    changed_now, hot_now = _updates()
    share = (hot_now - hot) / (changed_now - changed)
    print(f"\nWAL per job {per_job:.0f} B, attempts closed in place {share:.0%}")
    record_property("wal_bytes_per_job", round(per_job))
    assert changed_now - changed == JOBS
    assert per_job <= WAL_BYTES
    assert share >= HOT_SHARE


def _updates() -> tuple[int, int]:
    """Return how many attempt rows were updated, and how many of these without writing to an index."""
    connection.close()  # a session tells its figures at its end
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'django_jobs_attempt'")
        changed, hot = cursor.fetchone()
        return int(changed), int(hot)
