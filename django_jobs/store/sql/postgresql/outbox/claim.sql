-- purpose: lease due deliveries of one destination, and open an attempt of each: suspects, or all others
-- guard: state 'pending' and due; rows that others hold are skipped
-- index: django_jobs_delivery_ready, django_jobs_delivery_suspect
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT d.id, d.available_at FROM django_jobs_delivery d
    WHERE d.state = 'pending' AND d.destination = %(destination)s::text
        AND d.available_at <= (SELECT now FROM clock)  -- a value, not a join: the scan ends at the first that is not due
        AND d.lost_count = 0 AND NOT %(suspects)s::bool
    ORDER BY d.available_at, d.id
    LIMIT %(limit)s::bigint
    FOR NO KEY UPDATE OF d SKIP LOCKED
),
due_alone AS MATERIALIZED (
    SELECT d.id, d.available_at FROM django_jobs_delivery d
    WHERE d.state = 'pending' AND d.destination = %(destination)s::text
        AND d.available_at <= (SELECT now FROM clock)
        AND d.lost_count > 0 AND %(suspects)s::bool
    ORDER BY d.available_at
    LIMIT %(limit)s::bigint
    FOR NO KEY UPDATE OF d SKIP LOCKED
),
given AS MATERIALIZED (
    SELECT due.id, a.attempt_id
    FROM (
        SELECT id, row_number() OVER (ORDER BY available_at, id) AS n
        FROM (SELECT * FROM due UNION ALL SELECT * FROM due_alone) AS either
    ) AS due
    JOIN unnest(%(attempt_ids)s::uuid[]) WITH ORDINALITY AS a(attempt_id, n) ON a.n = due.n
),
taken AS (
    UPDATE django_jobs_delivery d
    SET state = 'claimed', revision = d.revision + 1, fence = d.fence + 1, attempt_id = given.attempt_id,
        lease_owner = %(worker_id)s::uuid, lease_child = %(child)s::int, lease_expires_at = clock.now + %(lease)s::interval, available_at = NULL
    FROM given, clock WHERE d.id = given.id
    RETURNING d.id, d.event_id, d.destination, d.redispatch, d.ordering_key, d.key_seq, d.fence, d.attempt_id,
        d.failed_count, d.lost_count
),
opened AS (
    INSERT INTO django_jobs_deliveryattempt (id, delivery_id, number, worker_id, alone, started_at, detail)
    SELECT t.attempt_id, t.id, t.fence, %(worker_id)s::uuid, %(alone)s::text, clock.now, '' FROM taken t, clock
)
SELECT t.*, e.type, e.version, e.source, e.subject, e.tenant, e.data, e.dataref, e.correlation_id,
    e.causation_id, e.traceparent, e.created_at AS event_created_at
FROM taken t JOIN django_jobs_outboxevent e ON e.id = t.event_id
