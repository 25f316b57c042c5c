-- purpose: store a new job with its payload and, if it has one, its idempotency key
-- guard: the key is free or has expired under the job that it is taken from (nothing is stored otherwise)
-- index: primary key; django_jobs_key_once
INSERT INTO django_jobs_idempotencykey (
    job_id, scope, key, payload_version, payload_fingerprint, ttl_seconds, created_at)
SELECT %(job_id)s, %(key_scope)s, %(key)s, %(payload_version)s, %(payload_fingerprint)s, %(ttl_seconds)s, %(now)s
WHERE %(key)s <> '' AND %(replaces)s IS NULL
ON CONFLICT DO NOTHING
-- then
UPDATE django_jobs_idempotencykey
SET job_id = %(job_id)s, payload_version = %(payload_version)s, payload_fingerprint = %(payload_fingerprint)s,
    ttl_seconds = %(ttl_seconds)s, created_at = %(now)s, expires_at = NULL
WHERE job_id = %(replaces)s AND scope = %(key_scope)s AND key = %(key)s
-- then
INSERT INTO django_jobs_job (
    id, job_type, queue_name, lane, resource, serial_key, serial_skips, priority, tenant, payload_version, payload_fingerprint, state, revision, generation,
    generation_started_at, unknown_count, transient_count, lost_count, exit_lost_count, silent_lost_count, free_count,
    unchanged_count, isolation, fence, available_at, useful_until, error_class, error_type, error_fingerprint,
    dead_reason, code_version, owner, correlation_id, subject, batch_id, traceparent, created_at)
SELECT %(job_id)s, %(job_type)s, %(queue_name)s,
    CASE WHEN a.available_at > %(now)s THEN '' WHEN %(serial_key)s <> '' THEN '~' ELSE %(resource)s END, %(resource)s, %(serial_key)s, %(serial_skips)s, %(priority)s, %(tenant)s, %(payload_version)s,
    %(payload_fingerprint)s, CASE WHEN a.available_at > %(now)s THEN 'scheduled' ELSE 'queued' END, 1, 1,
    a.available_at, 0, 0, 0, 0, 0, 0,
    0, '', 0, a.available_at, CASE WHEN %(useful_for)s IS NOT NULL THEN django_jobs_add(a.available_at, %(useful_for)s) END,
    '', '', '',
    '', '', %(owner)s, %(correlation_id)s, %(subject)s, %(batch_id)s, %(traceparent)s, %(now)s
FROM (
    SELECT MAX(%(now)s, COALESCE(%(run_after)s, %(now)s), django_jobs_add(%(now)s, COALESCE(%(delay)s, 0))) AS available_at
) AS a
WHERE %(key)s = '' OR EXISTS (SELECT 1 FROM django_jobs_idempotencykey WHERE job_id = %(job_id)s)
-- then
INSERT INTO django_jobs_jobpayload (job_id, arguments, key_scope, key, previous_job_id, chain_id, chain_position, context, error_text)
SELECT id, %(arguments)s, %(key_scope)s, %(key)s, %(replaces)s, %(chain_id)s, %(chain_position)s, %(context)s, '' FROM django_jobs_job WHERE id = %(job_id)s
-- then
SELECT id, state FROM django_jobs_job WHERE id = %(job_id)s
