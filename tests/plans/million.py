"""A million jobs as a site has them after a year: payloads, attempts and keys, and dead letters of a few errors."""

from __future__ import annotations

from django.db import connection

from tests.plans import backlog
from tests.plans.backlog import add

MILLION = 1_000_000
DEAD = 22_000
ERRORS = 37
RESOLVED = 3_000
_FINGERPRINT = f"'v1:' || encode(sha256(convert_to((n % {ERRORS})::text, 'UTF8')), 'hex')"
_DEAD = {
    **backlog.DEAD,
    "fence": "3",
    "job_type": "'tests.type' || n % 3",
    "dead_at": f"now() - ({DEAD} - n) * interval '1 minute'",
    "error_class": "'unknown'",
    "error_type": f"'Error' || n % {ERRORS}",
    "error_fingerprint": _FINGERPRINT,
    "owner": "'billing'",
}
_PAYLOADS = """
    INSERT INTO django_jobs_jobpayload (job_id, arguments, key_scope, key, error_text)
    SELECT id, jsonb_build_object('text', repeat('x', 100))::text, '/tests.work', id::text,
        CASE WHEN state = 'dead_lettered' THEN error_type || ': the provider said no' ELSE '' END
    FROM newest"""
_ATTEMPTS = """
    INSERT INTO django_jobs_attempt (id, job_id, number, generation, worker_id, worker_child, worker_name, code_version,
        alone, started_at, lease_seconds, finished_at, outcome, error_class, error_type, error_fingerprint, message,
        traceback, loss_cause, over_budget, refused_count, refused_operation)
    SELECT gen_random_uuid(), id, 1, 1, id, 1, 'worker', '', '', created_at, 70, created_at,
        CASE WHEN state = 'dead_lettered' THEN 'failed' ELSE 'succeeded' END, '', '', '', '', repeat('x', 200), '',
        false, 0, ''
    FROM newest"""
_KEYS = """
    INSERT INTO django_jobs_idempotencykey (job_id, scope, key, payload_version, payload_fingerprint, ttl_seconds,
        created_at)
    SELECT id, '/tests.work', id::text, 1, '', 60, now()
    FROM newest"""
WITH_ROWS = 200_000  # the newest jobs have rows of the other tables too


def load() -> None:
    """Store a million jobs: most are done, 22,000 dead letters wait for a human and 3,000 do not, 1,000 wait or run."""
    add(MILLION - DEAD - RESOLVED - 1_000, **backlog.DONE, subject="'order:' || n", job_type="'tests.type' || n % 20")
    add(RESOLVED, **_DEAD, resolution="'discarded'", finished_at="now()")
    add(DEAD, **_DEAD)
    add(800)
    add(200, **backlog.RUNNING)
    with connection.cursor() as cursor:
        for statement in (_PAYLOADS, _ATTEMPTS, _KEYS):
            cursor.execute(
                f"WITH newest AS (SELECT * FROM django_jobs_job ORDER BY id DESC LIMIT {WITH_ROWS}) {statement}"
            )
        cursor.execute("VACUUM ANALYZE")
