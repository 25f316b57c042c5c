-- purpose: store new jobs with their payloads and, where they have one, their idempotency keys
-- guard: per job: the key is free, or has expired under the job that it is taken from (else the job is left out); no row of another job is locked
-- index: primary key; django_jobs_key_once
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
given AS MATERIALIZED (
    SELECT g.job_id, g.payload_fingerprint, g.arguments, g.key, g.subject, g.replaces, g.serial_key, g.place
    FROM unnest(%(job_ids)s::uuid[], %(fingerprints)s::text[], %(arguments)s::text[], %(keys)s::text[], %(subjects)s::text[], %(replaced)s::uuid[], %(serial_keys)s::text[])
        WITH ORDINALITY AS g (job_id, payload_fingerprint, arguments, key, subject, replaces, serial_key, place)
),
taken AS (
    INSERT INTO django_jobs_idempotencykey (
        job_id, scope, key, payload_version, payload_fingerprint, ttl_seconds, created_at)
    SELECT g.job_id, %(key_scope)s::text, g.key, %(payload_version)s::int, g.payload_fingerprint, %(ttl_seconds)s::float8, clock.now
    FROM given g, clock WHERE g.key <> '' AND g.replaces IS NULL
    ORDER BY g.place
    ON CONFLICT DO NOTHING
    RETURNING job_id
),
expired AS MATERIALIZED (  -- locked in the order given: two producers wait for each other, never crosswise
    SELECT g.job_id, g.payload_fingerprint, g.replaces
    FROM given g JOIN django_jobs_idempotencykey k ON k.job_id = g.replaces AND k.scope = %(key_scope)s::text AND k.key = g.key
    ORDER BY g.place
    FOR UPDATE OF k
),
moved AS (
    UPDATE django_jobs_idempotencykey k
    SET job_id = e.job_id, payload_version = %(payload_version)s::int, payload_fingerprint = e.payload_fingerprint,
        ttl_seconds = %(ttl_seconds)s::float8, created_at = clock.now, expires_at = NULL
    FROM expired e, clock WHERE k.job_id = e.replaces
    RETURNING k.job_id
),
allowed AS MATERIALIZED (
    SELECT g.job_id, g.payload_fingerprint, g.arguments, g.key, g.subject, g.replaces, g.serial_key, clock.now,
        CASE WHEN %(run_after)s::timestamptz > clock.now THEN %(run_after)s::timestamptz
            WHEN %(delay)s::interval > interval '0' THEN clock.now + %(delay)s::interval
            ELSE clock.now END AS available_at
    FROM given g, clock
    WHERE g.key = '' OR g.job_id IN (SELECT job_id FROM taken UNION ALL SELECT job_id FROM moved)
),
stored AS (
    INSERT INTO django_jobs_job (
        id, job_type, queue_name, lane, resource, serial_key, serial_skips, priority, tenant, payload_version, payload_fingerprint, state, revision, generation,
        generation_started_at, unknown_count, transient_count, lost_count, exit_lost_count, silent_lost_count, free_count,
        unchanged_count, isolation, fence, available_at, useful_until, error_class, error_type, error_fingerprint,
        dead_reason, code_version, owner, correlation_id, subject, batch_id, traceparent, created_at)
    SELECT a.job_id, %(job_type)s::text, %(queue_name)s::text,
        CASE WHEN a.available_at > a.now THEN '' WHEN a.serial_key <> '' THEN '~' ELSE %(resource)s::text END, %(resource)s::text, a.serial_key, %(serial_skips)s::boolean, %(priority)s::int, %(tenant)s::text, %(payload_version)s::int,
        a.payload_fingerprint, CASE WHEN a.available_at > a.now THEN 'scheduled' ELSE 'queued' END, 1, 1,
        a.available_at, 0, 0, 0, 0, 0, 0,
        0, '', 0, a.available_at, a.available_at + %(useful_for)s::interval, '', '', '',
        '', '', %(owner)s::text, %(correlation_id)s::text, a.subject, %(batch_id)s::uuid, %(traceparent)s::text, a.now
    FROM allowed a
    RETURNING id, state
),
wide AS (
    INSERT INTO django_jobs_jobpayload (job_id, arguments, key_scope, key, previous_job_id, context, error_text)
    SELECT a.job_id, a.arguments, CASE WHEN a.key = '' THEN '' ELSE %(key_scope)s::text END, a.key, a.replaces, %(context)s::text, '' FROM allowed a
),
woken AS MATERIALIZED (
    SELECT pg_notify('django_jobs_wake', c.queue_name)
    FROM clock, django_jobs_queuecontrol c
    WHERE %(notify)s::boolean AND EXISTS (SELECT 1 FROM stored WHERE stored.state = 'queued')
        AND c.queue_name = %(queue_name)s::text AND c.idle_until > clock.now
)
SELECT id, state, EXISTS (SELECT 1 FROM woken) AS woken FROM stored
