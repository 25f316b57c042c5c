-- purpose: delete finished jobs with all of their rows; a live key keeps its expiry and how its job ended
-- guard: the caller holds the rows of the jobs, effects and keys, and asked jobs_due again after that
-- index: primary key; django_jobs_attempt_number; django_jobs_send_number; django_jobs_duplicate_newest
WITH chosen AS MATERIALIZED (
    SELECT j.id, j.state, j.resolution, j.finished_at
    FROM unnest(%(ids)s::uuid[]) AS c(id) JOIN django_jobs_job j ON j.id = c.id
),
own AS MATERIALIZED (SELECT e.id FROM django_jobs_sideeffect e JOIN chosen c ON c.id = e.job_id),
expired AS (
    DELETE FROM django_jobs_idempotencykey k USING chosen c
    WHERE k.job_id = c.id AND c.finished_at + make_interval(secs => k.ttl_seconds) <= %(now)s::timestamptz
),
outliving AS (
    UPDATE django_jobs_idempotencykey k
    SET expires_at = c.finished_at + make_interval(secs => k.ttl_seconds), final_state = c.state,
        final_resolution = c.resolution
    FROM chosen c
    WHERE k.job_id = c.id AND c.finished_at + make_interval(secs => k.ttl_seconds) > %(now)s::timestamptz
),
duplicates AS (DELETE FROM django_jobs_duplicateenqueue d USING chosen c WHERE d.job_id = c.id),
requests AS (DELETE FROM django_jobs_cancelrequest r USING chosen c WHERE r.job_id = c.id),
steps AS (DELETE FROM django_jobs_jobstep s USING chosen c WHERE s.job_id = c.id),
taken AS (DELETE FROM django_jobs_effectadoption d USING chosen c WHERE d.job_id = c.id),
stakes AS (
    DELETE FROM django_jobs_effectstake k
    WHERE k.job_id IN (SELECT id FROM chosen) OR k.effect_id IN (SELECT id FROM own)
),
takings AS (DELETE FROM django_jobs_compensation t USING chosen c WHERE t.original_job_id = c.id),
questions AS (DELETE FROM django_jobs_reconciliation r USING own WHERE r.effect_id = own.id),
sends AS (DELETE FROM django_jobs_send s USING own WHERE s.effect_id = own.id),
effects AS (DELETE FROM django_jobs_sideeffect e USING own WHERE e.id = own.id),
attempts AS (DELETE FROM django_jobs_attempt a USING chosen c WHERE a.job_id = c.id),
payloads AS (DELETE FROM django_jobs_jobpayload p USING chosen c WHERE p.job_id = c.id),
stretch AS (
    INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
    VALUES (%(stretch_id)s::uuid, 'jobs', %(first)s::uuid, %(last)s::uuid, %(many)s::int, %(finished_before)s::timestamptz, %(now)s::timestamptz)
)
DELETE FROM django_jobs_job j USING chosen c WHERE j.id = c.id
