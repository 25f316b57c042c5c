"""Pruning of many jobs: bounded memory, short batches, an end that is reached; the figures are printed, not asserted."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, models

from django_jobs.domain.ids import first_id
from django_jobs.models import Job, JobPayload, PrunedStretch, Send
from django_jobs.operate.verify import verify
from tests.databases import Server
from tests.integration.store.measuring import blocks, measured_prune

JOBS = int(os.environ.get("TEST_PRUNE_JOBS", "20000"))  # how many does not matter to what is asserted
MEMORY = 20 * 1024 * 1024  # bytes, whatever the number of jobs

# Ids that rise with time, as producers make them; every second job has an expired key, every tenth an effect.
FILL = """
WITH ids AS MATERIALIZED (
    SELECT n, (%(prefix)s || lpad(to_hex(n), 20, '0'))::uuid AS id, md5('a' || n)::uuid AS attempt, md5('e' || n)::uuid AS effect
    FROM generate_series(1, %(many)s) n
),
jobs AS (
    INSERT INTO django_jobs_job (id, job_type, queue_name, lane, priority, tenant, payload_version, payload_fingerprint,
        state, revision, generation, generation_started_at, unknown_count, transient_count, lost_count, exit_lost_count,
        silent_lost_count, free_count, unchanged_count, isolation, fence, available_at, error_class, error_type,
        error_fingerprint, dead_reason, finished_at, code_version, owner, correlation_id, subject, traceparent, created_at)
    SELECT id, 'tests.work', 'q', '', 0, '', 1, 'v1:' || encode(sha256(convert_to('"' || repeat('x', 500) || '"', 'UTF8')), 'hex'),
        'succeeded', 1, 1, %(then)s, 0, 0, 0, 0, 0, 0, 0, '', 1, %(then)s, '', '', '', '', %(then)s, '', '', '', '', '', %(then)s
    FROM ids
),
payloads AS (
    INSERT INTO django_jobs_jobpayload (job_id, arguments, key_scope, key, error_text)
    SELECT id, '"' || repeat('x', 500) || '"', CASE n %% 2 WHEN 0 THEN '/tests.work' ELSE '' END,
        CASE n %% 2 WHEN 0 THEN n::text ELSE '' END, '' FROM ids
),
keys AS (
    INSERT INTO django_jobs_idempotencykey (job_id, scope, key, payload_version, payload_fingerprint, ttl_seconds, created_at)
    SELECT id, '/tests.work', n::text, 1,
        'v1:' || encode(sha256(convert_to('"' || repeat('x', 500) || '"', 'UTF8')), 'hex'), 60, %(then)s
    FROM ids WHERE n %% 2 = 0
),
effects AS (
    INSERT INTO django_jobs_sideeffect (id, job_id, tenant, provider, business_key, name, state, revision, required,
        on_ambiguous, owner, epoch, request, request_digest, dedupe, key_alphabet, key_max_length, caches_failures, can_reconcile, settle_seconds, visible_after_seconds,
        retry_policy, provider_ref, provider_request_id, result, needs_review, review_reason, resolved_by, resolved_at, created_at)
    SELECT effect, id, '', 'p', n::text, 'charge', 'succeeded', 1, true, 'review', '', 0, '{}', 'v1:' || md5('x'), 'natural', 'ascii', 255, false,
        false, 0, 0, '{}', 'ref', '', '{}', false, '', 'send', %(then)s, %(then)s
    FROM ids WHERE n %% 10 = 0
),
sends AS (
    INSERT INTO django_jobs_send (id, effect_id, job_id, attempt_id, fence, number, epoch, provider_key, request_digest,
        started_at, deadline_at, settled_at, finished_at, outcome, provider_ref, provider_request_id, replayed, permanent,
        key_is_burnt, reason)
    SELECT md5('s' || n)::uuid, effect, id, attempt, 1, 1, 0, 'k' || n, 'v1:' || md5('x'), %(then)s,
        %(then)s::timestamptz + interval '1 ms', %(then)s::timestamptz + interval '1 ms', %(then)s, 'confirmed', 'ref', '', false, false, false, ''
    FROM ids WHERE n %% 10 = 0
)
INSERT INTO django_jobs_attempt (id, job_id, number, generation, worker_id, worker_child, worker_name, code_version, alone,
    started_at, lease_seconds, finished_at, outcome, error_class, error_type, error_fingerprint, message, traceback,
    loss_cause, over_budget, refused_count, refused_operation)
SELECT attempt, id, 1, 1, gen_random_uuid(), 1, 'w', '', '', %(then)s, 60, %(then)s, 'succeeded', '', '', '', '', '', '', false, 0, ''
FROM ids
"""


def fill(many: int) -> None:
    """Store so many jobs that finished two years ago."""
    then = datetime.now(UTC) - timedelta(days=730)
    with connection.cursor() as cursor:
        cursor.execute(FILL, {"prefix": first_id(then).hex[:12], "many": many, "then": then})
        cursor.execute("ANALYZE")


def sizes() -> str:
    """Return the size of each table of jobs with its indexes, in MB."""
    tables = ("job", "jobpayload", "attempt", "idempotencykey", "sideeffect", "send", "prunedstretch")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, pg_total_relation_size(oid) / 1048576.0 FROM pg_class WHERE relname = ANY(%s) ORDER BY 1",
            [[f"django_jobs_{table}" for table in tables]],
        )
        return ", ".join(f"{name.removeprefix('django_jobs_')} {size:.1f} MB" for name, size in cursor.fetchall())


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.timeout(1800)
@pytest.mark.django_db(transaction=True)
def test_two_hundred_thousand_jobs_are_pruned_in_bounded_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Content and rows of all go; no batch takes long, memory does not grow with their number, and it all adds up."""
    fill(JOBS)
    before, run = sizes(), measured_prune(monkeypatch)
    found = run.found
    with capsys.disabled():
        print(
            f"\npruned {JOBS} jobs in {found.seconds:.1f} s: {2 * JOBS / found.seconds:.0f} jobs/s (content and rows), "
            f"longest batch {run.slowest * 1000:.0f} ms, memory {run.peak / 1048576:.1f} MB, "
            f"{PrunedStretch.objects.count()} records\nbefore: {before}\nafter, not vacuumed: {sizes()}"
        )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
    with capsys.disabled():
        print(f"after VACUUM: {sizes()}")

    assert (found.content, found.jobs, found.complete) == (JOBS, JOBS, True)
    assert Job.objects.count() == JobPayload.objects.count() == Send.objects.count() == 0
    assert PrunedStretch.objects.aggregate(many=models.Sum("rows"))["many"] >= 2 * JOBS
    assert run.peak < MEMORY
    assert not verify(using="default").violated


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_looks_read_as_many_entries_as_they_take(server: Server) -> None:
    """A look of ten ids walks a primary key from where the last one ended, however many jobs there are."""
    fill(5_000)
    limits = {"now": datetime.now(UTC), "after": first_id(datetime.now(UTC) - timedelta(days=731)), "limit": 10}
    for kind in ("content", "jobs", "keys"):
        params = {
            **limits,
            "upto": first_id(datetime.now(UTC)),
            **dict.fromkeys(("content_before", "dead_before", "rows_before"), datetime.now(UTC)),
        }
        rows, pages = blocks(f"prune/{kind}_due", params)
        assert rows == 10
        assert pages < 300, kind
