-- purpose: store a new job with its payload and, if it has one, its idempotency key
-- guard: the key is free (nothing is stored otherwise); no row of another job is locked
-- index: primary key; django_jobs_key_once
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
taken AS (
    INSERT INTO django_jobs_idempotencykey (
        job_id, scope, key, payload_version, payload_fingerprint, ttl_seconds, created_at)
    SELECT %(job_id)s::uuid, %(key_scope)s::text, %(key)s::text, %(payload_version)s::int, %(payload_fingerprint)s::text, %(ttl_seconds)s::float8, clock.now
    FROM clock WHERE %(key)s::text <> '' AND %(replaces)s::uuid IS NULL
    ON CONFLICT DO NOTHING
    RETURNING job_id
),
moved AS (
    UPDATE django_jobs_idempotencykey k
    SET job_id = %(job_id)s::uuid, payload_version = %(payload_version)s::int, payload_fingerprint = %(payload_fingerprint)s::text,
        ttl_seconds = %(ttl_seconds)s::float8, created_at = clock.now, expires_at = NULL
    FROM clock WHERE k.job_id = %(replaces)s::uuid AND k.scope = %(key_scope)s::text AND k.key = %(key)s::text
    RETURNING k.job_id
),
allowed AS (
    SELECT clock.now,
        CASE WHEN %(run_after)s::timestamptz > clock.now THEN %(run_after)s::timestamptz
            WHEN %(delay)s::interval > interval '0' THEN clock.now + %(delay)s::interval
            ELSE clock.now END AS available_at
    FROM clock
    WHERE %(key)s::text = '' OR EXISTS (SELECT 1 FROM taken) OR EXISTS (SELECT 1 FROM moved)
),
stored AS (
    INSERT INTO django_jobs_job (
        id, job_type, queue_name, lane, resource, serial_key, serial_skips, priority, tenant, payload_version, payload_fingerprint, state, revision, generation,
        generation_started_at, unknown_count, transient_count, lost_count, exit_lost_count, silent_lost_count, free_count,
        unchanged_count, isolation, fence, available_at, useful_until, error_class, error_type, error_fingerprint,
        dead_reason, code_version, owner, correlation_id, subject, batch_id, traceparent, created_at)
    SELECT %(job_id)s::uuid, %(job_type)s::text, %(queue_name)s::text,
        CASE WHEN a.available_at > a.now THEN '' WHEN %(serial_key)s::text <> '' THEN '~' ELSE %(resource)s::text END, %(resource)s::text, %(serial_key)s::text, %(serial_skips)s::boolean, %(priority)s::int, %(tenant)s::text, %(payload_version)s::int,
        %(payload_fingerprint)s::text, CASE WHEN a.available_at > a.now THEN 'scheduled' ELSE 'queued' END, 1, 1,
        a.available_at, 0, 0, 0, 0, 0, 0,
        0, '', 0, a.available_at, a.available_at + %(useful_for)s::interval, '', '', '',
        '', '', %(owner)s::text, %(correlation_id)s::text, %(subject)s::text, %(batch_id)s::uuid, %(traceparent)s::text, a.now
    FROM allowed a
    RETURNING id, state
),
wide AS (
    INSERT INTO django_jobs_jobpayload (job_id, arguments, key_scope, key, previous_job_id, chain_id, chain_position, context, error_text)
    SELECT id, %(arguments)s::text, %(key_scope)s::text, %(key)s::text, %(replaces)s::uuid, %(chain_id)s::uuid, %(chain_position)s::int, %(context)s::text, '' FROM stored
),
woken AS MATERIALIZED (
    SELECT pg_notify('django_jobs_wake', c.queue_name)
    FROM stored, clock, django_jobs_queuecontrol c
    WHERE %(notify)s::boolean AND stored.state = 'queued'
        AND c.queue_name = %(queue_name)s::text AND c.idle_until > clock.now
)
SELECT id, state, EXISTS (SELECT 1 FROM woken) AS woken FROM stored
