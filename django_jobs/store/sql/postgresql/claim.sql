-- purpose: lease jobs that can start now, open their attempts, and hand over all that is needed to run them
-- guard: state 'queued', due, still useful, of a known type and version; rows that others hold are skipped
-- index: django_jobs_job_ready (django_jobs_job_suspect for jobs that must run alone)
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
known AS MATERIALIZED (
    SELECT * FROM unnest(%(job_types)s::text[], %(versions)s::int[], %(leases)s::float8[], %(code_versions)s::text[])
        AS k(job_type, payload_version, lease_seconds, code_version)
),
ids AS MATERIALIZED (
    SELECT * FROM unnest(%(attempt_ids)s::uuid[]) WITH ORDINALITY AS i(attempt_id, place)
),
ready AS MATERIALIZED (
    SELECT found.id, found.priority, found.available_at
    FROM clock, unnest(%(queues)s::text[]) AS q(queue_name)
    CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.available_at
        FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name AND j.lane = ''
            AND j.available_at <= clock.now
            AND (j.useful_until IS NULL OR j.useful_until > clock.now)
            AND EXISTS (SELECT 1 FROM known k WHERE k.job_type = j.job_type AND k.payload_version = j.payload_version)
        ORDER BY j.priority DESC, j.available_at, j.id
        LIMIT %(limit)s::bigint
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
    ORDER BY found.priority DESC, found.available_at, found.id
    LIMIT %(limit)s::bigint
),
suspects AS MATERIALIZED (
    SELECT j.id, j.priority, j.available_at
    FROM django_jobs_job j, clock
    WHERE j.state = 'queued' AND j.isolation <> '' AND j.queue_name = ANY(%(queues)s::text[]) AND j.lane = ''
        AND j.available_at <= clock.now
        AND (j.useful_until IS NULL OR j.useful_until > clock.now)
        AND EXISTS (SELECT 1 FROM known k WHERE k.job_type = j.job_type AND k.payload_version = j.payload_version)
    ORDER BY j.available_at, j.id
    LIMIT %(suspects)s::bigint
    FOR NO KEY UPDATE OF j SKIP LOCKED
),
picked AS MATERIALIZED (
    SELECT both_kinds.id, row_number() OVER (ORDER BY both_kinds.priority DESC, both_kinds.available_at, both_kinds.id) AS place
    FROM (SELECT * FROM ready UNION ALL SELECT * FROM suspects) AS both_kinds
),
claimed AS (
    UPDATE django_jobs_job j
    SET state = 'running', revision = j.revision + 1, fence = j.fence + 1, attempt_id = ids.attempt_id,
        lease_owner = %(worker_id)s::uuid, lease_child = %(worker_child)s::int,
        lease_expires_at = clock.now + k.lease_seconds * interval '1 second',
        progress = NULL, progress_total = NULL, code_version = k.code_version
    FROM picked JOIN ids ON ids.place = picked.place, clock, known k
    WHERE j.id = picked.id AND k.job_type = j.job_type AND k.payload_version = j.payload_version
    RETURNING j.*, k.lease_seconds, clock.now AS claimed_at
),
opened AS (
    INSERT INTO django_jobs_attempt (
        id, job_id, number, generation, worker_id, worker_child, worker_name, code_version, alone, started_at,
        lease_seconds, error_class, error_type, error_fingerprint, message, traceback, loss_cause, over_budget,
        refused_count, refused_operation)
    SELECT attempt_id, id, fence, generation, %(worker_id)s::uuid, %(worker_child)s::int, %(worker_name)s::text, code_version, %(alone)s::text,
        claimed_at, lease_seconds, '', '', '', '', '', '', false, 0, ''
    FROM claimed
)
SELECT claimed.*, p.arguments, p.key_scope, p.key
FROM claimed LEFT JOIN django_jobs_jobpayload p ON p.job_id = claimed.id
ORDER BY claimed.priority DESC, claimed.available_at, claimed.id
