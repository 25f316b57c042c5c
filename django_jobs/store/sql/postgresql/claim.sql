-- purpose: lease jobs that can start now, open their attempts, and hand over all that is needed to run them
-- guard: state 'queued', due, still useful, of a known type and version, within the queue's limit; held rows are skipped
-- index: django_jobs_job_ready (django_jobs_job_watched for jobs that must run alone); django_jobs_job_held counts
-- At most 200 entries are looked at per queue and lane, and as many again behind each position in "beyond": rows that this worker
-- cannot run cost no more than that. The lane is asked for again under the lock, because the turn of a serial key may be lost
-- meanwhile; not by "=", along which the planner would look for rows anew. The caller holds the lock of each queue that has a
-- limit and of each resource, and has counted how many jobs that use it may start (room).
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
known AS MATERIALIZED (
    SELECT * FROM unnest(%(job_types)s::text[], %(versions)s::int[], %(leases)s::float8[], %(code_versions)s::text[])
        AS k(job_type, payload_version, lease_seconds, code_version)
),
ids AS MATERIALIZED (
    SELECT * FROM unnest(%(attempt_ids)s::uuid[]) WITH ORDINALITY AS i(attempt_id, place)
),
served AS MATERIALIZED (
    SELECT q.queue_name, q.lane, q.room,
        CASE WHEN q.at_most IS NULL THEN %(limit)s::bigint + %(suspects)s::bigint
            ELSE GREATEST(0, q.at_most - (
                SELECT count(*) FROM django_jobs_job r WHERE r.state = 'running' AND r.queue_name = q.queue_name))
            END AS places
    FROM unnest(%(queues)s::text[], %(lanes)s::text[], %(limits)s::int[], %(rooms)s::int[]) AS q(queue_name, lane, at_most, room)
),
ready AS MATERIALIZED (
    SELECT found.id, q.queue_name, q.lane, found.priority, found.available_at
    FROM clock, served q
    CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.available_at
        FROM (
            SELECT l.id, l.priority, l.available_at FROM django_jobs_job l
            WHERE l.state = 'queued' AND l.isolation = '' AND l.queue_name = q.queue_name AND l.lane = q.lane
                AND l.available_at <= clock.now
            ORDER BY l.priority DESC, l.available_at, l.id
            LIMIT 200
        ) AS seen
        JOIN django_jobs_job j ON j.id = seen.id
        WHERE j.state = 'queued' AND j.isolation = '' AND j.lane IS NOT DISTINCT FROM q.lane
            AND (j.useful_until IS NULL OR j.useful_until > clock.now)
            AND EXISTS (SELECT 1 FROM known k WHERE k.job_type = j.job_type AND k.payload_version = j.payload_version)
        ORDER BY seen.priority DESC, seen.available_at, seen.id
        LIMIT LEAST(%(limit)s::bigint, q.places, q.room)
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ) AS found
),
-- part: beyond
beyond AS MATERIALIZED (
    SELECT found.id, q.queue_name, q.lane, found.priority, found.available_at
    FROM clock, unnest(
        %(after_queues)s::text[], %(after_lanes)s::text[], %(after_priorities)s::int[], %(after_times)s::timestamptz[], %(after_ids)s::uuid[]
    ) AS a(queue_name, lane, priority, available_at, id)
    JOIN served q ON q.queue_name = a.queue_name AND q.lane = a.lane
    CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.available_at
        FROM (
            SELECT * FROM (
                (SELECT l.id, l.priority, l.available_at FROM django_jobs_job l
                WHERE l.state = 'queued' AND l.isolation = '' AND l.queue_name = a.queue_name AND l.lane = a.lane
                    AND l.priority = a.priority AND (l.available_at, l.id) > (a.available_at, a.id)
                    AND l.available_at <= clock.now
                ORDER BY l.available_at, l.id LIMIT 200)
                UNION ALL
                (SELECT l.id, l.priority, l.available_at FROM django_jobs_job l
                WHERE l.state = 'queued' AND l.isolation = '' AND l.queue_name = a.queue_name AND l.lane = a.lane
                    AND l.priority < a.priority AND l.available_at <= clock.now
                ORDER BY l.priority DESC, l.available_at, l.id LIMIT 200)
            ) AS two_parts
            ORDER BY two_parts.priority DESC, two_parts.available_at, two_parts.id
            LIMIT 200
        ) AS seen
        JOIN django_jobs_job j ON j.id = seen.id
        WHERE j.state = 'queued' AND j.isolation = '' AND j.lane IS NOT DISTINCT FROM q.lane
            AND (j.useful_until IS NULL OR j.useful_until > clock.now)
            AND EXISTS (SELECT 1 FROM known k WHERE k.job_type = j.job_type AND k.payload_version = j.payload_version)
        ORDER BY seen.priority DESC, seen.available_at, seen.id
        LIMIT LEAST(%(limit)s::bigint, q.places, q.room)
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ) AS found
),
-- end
-- part: suspects
suspects AS MATERIALIZED (
    SELECT found.id, q.queue_name, q.lane, found.priority, found.available_at
    FROM clock, served q
    CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.available_at
        FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation <> '' AND j.isolation > '' AND j.queue_name = q.queue_name AND j.lane = q.lane
            AND (j.isolation = 'child' OR %(alone)s::text = 'worker')
            AND j.available_at <= clock.now
            AND (j.useful_until IS NULL OR j.useful_until > clock.now)
            AND EXISTS (SELECT 1 FROM known k WHERE k.job_type = j.job_type AND k.payload_version = j.payload_version)
        ORDER BY j.available_at, j.id
        LIMIT LEAST(%(suspects)s::bigint, q.places, q.room)
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
    ORDER BY found.available_at, found.id
    LIMIT %(suspects)s::bigint
),
-- end
allowed AS MATERIALIZED (
    SELECT one.id, one.priority, one.available_at, q.places, q.room,
        row_number() OVER (
            PARTITION BY one.lane
            ORDER BY CASE WHEN %(oldest)s::bool THEN one.available_at END, one.priority DESC, one.available_at, one.id) AS nth_of_lane,
        row_number() OVER (
            PARTITION BY one.queue_name
            ORDER BY CASE WHEN %(oldest)s::bool THEN one.available_at END, one.priority DESC, one.available_at, one.id) AS nth
    FROM (
        SELECT * FROM ready
        -- part: beyond
        UNION SELECT * FROM beyond
        -- end
        -- part: suspects
        UNION SELECT * FROM suspects
        -- end
    ) AS one
    JOIN served q ON q.queue_name = one.queue_name AND q.lane = one.lane
),
picked AS MATERIALIZED (
    SELECT a.id,
        row_number() OVER (
            ORDER BY CASE WHEN %(oldest)s::bool THEN a.available_at END, a.priority DESC, a.available_at, a.id) AS place
    FROM allowed a
    WHERE a.nth <= a.places AND (a.room IS NULL OR a.nth_of_lane <= a.room)
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
SELECT claimed.*, p.arguments, p.key_scope, p.key, p.chain_id, p.chain_position, p.context
FROM claimed LEFT JOIN django_jobs_jobpayload p ON p.job_id = claimed.id
ORDER BY claimed.priority DESC, claimed.available_at, claimed.id
