-- purpose: remove what can be read of finished jobs and of their effects, expired keys with their digests included
-- guard: the caller holds the rows of the jobs, effects and keys, and asked content_due again after that
-- index: primary key; django_jobs_attempt_number; django_jobs_send_number
WITH chosen AS MATERIALIZED (SELECT unnest(%(ids)s::uuid[]) AS id),
own AS MATERIALIZED (SELECT e.id FROM django_jobs_sideeffect e JOIN chosen c ON c.id = e.job_id),
attempts AS (
    UPDATE django_jobs_attempt a SET message = '', traceback = '', error_fingerprint = ''
    FROM chosen c
    WHERE a.job_id = c.id AND (a.message <> '' OR a.traceback <> '' OR a.error_fingerprint <> '')
),
steps AS (UPDATE django_jobs_jobstep s SET result = 'null' FROM chosen c WHERE s.job_id = c.id AND s.result <> 'null'),
sends AS (UPDATE django_jobs_send s SET request_digest = '', reason = '' FROM own WHERE s.effect_id = own.id),
questions AS (
    UPDATE django_jobs_reconciliation r SET evidence = '{}' FROM own WHERE r.effect_id = own.id AND r.evidence <> '{}'
),
effects AS (
    UPDATE django_jobs_sideeffect e
    SET request = '', request_digest = '', result = '{}', revision = e.revision + 1,
        review_reason = CASE e.review_reason WHEN '' THEN '' ELSE 'removed' END
    FROM own WHERE e.id = own.id
),
payloads AS (DELETE FROM django_jobs_jobpayload p USING chosen c WHERE p.job_id = c.id),
expired AS (
    DELETE FROM django_jobs_idempotencykey k USING chosen c, django_jobs_job j
    WHERE k.job_id = c.id AND j.id = c.id
        AND j.finished_at + make_interval(secs => k.ttl_seconds) <= %(now)s::timestamptz
),
stretch AS (
    INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
    VALUES (%(stretch_id)s::uuid, 'content', %(first)s::uuid, %(last)s::uuid, %(many)s::int, %(finished_before)s::timestamptz, %(now)s::timestamptz)
)
UPDATE django_jobs_job j SET content_removed_at = %(now)s::timestamptz, payload_fingerprint = '', error_fingerprint = ''
FROM chosen c WHERE j.id = c.id
