-- purpose: store new jobs with their payloads and, where they have one, their idempotency keys
-- guard: per job: the key is free, or has expired under the job that it is taken from (else the job is left out)
-- index: primary key; django_jobs_key_once
WITH given AS MATERIALIZED (
    SELECT json_extract(r.value, '$[0]') AS job_id, json_extract(r.value, '$[1]') AS payload_fingerprint,
        json_extract(r.value, '$[2]') AS arguments, json_extract(r.value, '$[3]') AS key,
        json_extract(r.value, '$[4]') AS subject, json_extract(r.value, '$[5]') AS replaces,
        json_extract(r.value, '$[6]') AS serial_key
    FROM json_each(%(rows)s) r
)
INSERT INTO django_jobs_idempotencykey (
    job_id, scope, key, payload_version, payload_fingerprint, ttl_seconds, created_at)
SELECT g.job_id, %(key_scope)s, g.key, %(payload_version)s, g.payload_fingerprint, %(ttl_seconds)s, %(now)s
FROM given g WHERE g.key <> '' AND g.replaces IS NULL
ON CONFLICT DO NOTHING
-- then
WITH given AS MATERIALIZED (
    SELECT json_extract(r.value, '$[0]') AS job_id, json_extract(r.value, '$[1]') AS payload_fingerprint,
        json_extract(r.value, '$[2]') AS arguments, json_extract(r.value, '$[3]') AS key,
        json_extract(r.value, '$[4]') AS subject, json_extract(r.value, '$[5]') AS replaces,
        json_extract(r.value, '$[6]') AS serial_key
    FROM json_each(%(rows)s) r
)
UPDATE django_jobs_idempotencykey AS k
SET job_id = g.job_id, payload_version = %(payload_version)s, payload_fingerprint = g.payload_fingerprint,
    ttl_seconds = %(ttl_seconds)s, created_at = %(now)s, expires_at = NULL
FROM given g WHERE k.job_id = g.replaces AND k.scope = %(key_scope)s AND k.key = g.key
-- then
WITH given AS MATERIALIZED (
    SELECT json_extract(r.value, '$[0]') AS job_id, json_extract(r.value, '$[1]') AS payload_fingerprint,
        json_extract(r.value, '$[2]') AS arguments, json_extract(r.value, '$[3]') AS key,
        json_extract(r.value, '$[4]') AS subject, json_extract(r.value, '$[5]') AS replaces,
        json_extract(r.value, '$[6]') AS serial_key
    FROM json_each(%(rows)s) r
)
INSERT INTO django_jobs_job (
    id, job_type, queue_name, lane, resource, serial_key, serial_skips, priority, tenant, payload_version, payload_fingerprint, state, revision, generation,
    generation_started_at, unknown_count, transient_count, lost_count, exit_lost_count, silent_lost_count, free_count,
    unchanged_count, isolation, fence, available_at, useful_until, error_class, error_type, error_fingerprint,
    dead_reason, code_version, owner, correlation_id, subject, batch_id, traceparent, created_at)
SELECT g.job_id, %(job_type)s, %(queue_name)s,
    CASE WHEN a.available_at > %(now)s THEN '' WHEN g.serial_key <> '' THEN '~' ELSE %(resource)s END, %(resource)s, g.serial_key, %(serial_skips)s, %(priority)s, %(tenant)s, %(payload_version)s,
    g.payload_fingerprint, CASE WHEN a.available_at > %(now)s THEN 'scheduled' ELSE 'queued' END, 1, 1,
    a.available_at, 0, 0, 0, 0, 0, 0,
    0, '', 0, a.available_at, CASE WHEN %(useful_for)s IS NOT NULL THEN django_jobs_add(a.available_at, %(useful_for)s) END,
    '', '', '',
    '', '', %(owner)s, %(correlation_id)s, g.subject, %(batch_id)s, %(traceparent)s, %(now)s
FROM (
    SELECT MAX(%(now)s, COALESCE(%(run_after)s, %(now)s), django_jobs_add(%(now)s, COALESCE(%(delay)s, 0))) AS available_at
) AS a, given g
WHERE g.key = '' OR EXISTS (SELECT 1 FROM django_jobs_idempotencykey k WHERE k.job_id = g.job_id)
RETURNING id, state
-- then
WITH given AS MATERIALIZED (
    SELECT json_extract(r.value, '$[0]') AS job_id, json_extract(r.value, '$[1]') AS payload_fingerprint,
        json_extract(r.value, '$[2]') AS arguments, json_extract(r.value, '$[3]') AS key,
        json_extract(r.value, '$[4]') AS subject, json_extract(r.value, '$[5]') AS replaces,
        json_extract(r.value, '$[6]') AS serial_key
    FROM json_each(%(rows)s) r
)
INSERT INTO django_jobs_jobpayload (job_id, arguments, key_scope, key, previous_job_id, context, error_text)
SELECT g.job_id, g.arguments, CASE WHEN g.key = '' THEN '' ELSE %(key_scope)s END, g.key, g.replaces, %(context)s, ''
FROM given g WHERE EXISTS (SELECT 1 FROM django_jobs_job j WHERE j.id = g.job_id)
