-- purpose: store an event, and one delivery for each destination that is subscribed to it; wake a dispatcher that sleeps
-- guard: none; an earlier statement of this transaction holds the counter of the ordering key
-- index: django_jobs_subscription_once, django_jobs_delivery_head
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
routes AS MATERIALIZED (
    SELECT s.destination, (
            SELECT d.key_seq FROM django_jobs_delivery d
            WHERE d.destination = s.destination AND d.ordering_key = %(ordering_key)s::text
                AND NOT (d.ordering_key = '') AND d.redispatch = 0
                AND d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.key_seq < %(key_seq)s::bigint
            ORDER BY d.key_seq LIMIT 1  -- not EXISTS: the planner would read a table from its start where a key is hot
        ) IS NOT NULL AS waits
    FROM django_jobs_subscription s, clock
    WHERE s.event_type = %(type)s::text AND s.version = %(version)s::int
        AND s.active_from <= clock.now AND (s.ended_at IS NULL OR s.ended_at > clock.now)
),
stored AS (
    INSERT INTO django_jobs_outboxevent (id, type, version, source, subject, tenant, data, data_digest, dataref, ordering_key, key_seq, job_id, attempt_id,
    fence, correlation_id, causation_id, traceparent, routed_count, created_at)
    SELECT %(event_id)s::uuid, %(type)s::text, %(version)s::int, %(source)s::text, %(subject)s::text, %(tenant)s::text,
        %(data)s::text, %(data_digest)s::text, %(dataref)s::text, %(ordering_key)s::text, %(key_seq)s::bigint,
        %(job_id)s::uuid, %(attempt_id)s::uuid, %(fence)s::bigint, %(correlation_id)s::text, %(causation_id)s::text,
        %(traceparent)s::text, (SELECT COUNT(*) FROM routes), clock.now
    FROM clock
),
sent AS (
    INSERT INTO django_jobs_delivery (
        id, event_id, destination, redispatch, ordering_key, key_seq, state, revision, fence, failed_count, lost_count,
        available_at, receipt, dead_reason, last_error, created_at)
    SELECT (left(%(event_id)s::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid, %(event_id)s::uuid,
        r.destination, 0, %(ordering_key)s::text, %(key_seq)s::bigint, CASE WHEN r.waits THEN 'waiting' ELSE 'pending' END,
        1, 0, 0, 0, CASE WHEN r.waits THEN NULL ELSE clock.now END, '', '', '', clock.now
    FROM routes r, clock
    RETURNING state
),
woken AS MATERIALIZED (
    SELECT pg_notify('django_jobs_wake', c.queue_name)
    FROM clock, django_jobs_queuecontrol c
    WHERE %(notify)s::boolean AND c.queue_name = '*events' AND c.idle_until > clock.now
        AND EXISTS (SELECT 1 FROM sent WHERE state = 'pending')
)
SELECT COUNT(*) AS routed, COUNT(*) FILTER (WHERE state = 'waiting') AS waiting, EXISTS (SELECT 1 FROM woken) AS woken
FROM sent
