-- purpose: record that destinations confirmed deliveries, and let the next of each ordering key go
-- guard: 'claimed' under the attempt that is named, or 'pending' after it, as lost; promotes where it marked, what still waits
-- index: primary keys; django_jobs_delivery_head
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(attempt_ids)s::uuid[], %(receipts)s::text[], %(statuses)s::int[]
    ) AS g(id, attempt_id, receipt, status)
),
marked AS (
    UPDATE django_jobs_delivery d
    SET state = 'published', revision = d.revision + 1, published_at = clock.now, available_at = NULL,
        attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL, lost_count = 0,
        receipt = g.receipt
    FROM given g, clock
    WHERE d.id = g.id AND (
        (d.state = 'claimed' AND d.attempt_id = g.attempt_id)
        -- The row may have been taken back since this began: then its attempt still looks open from here.
        OR (d.state = 'pending' AND d.fence = (
            SELECT a.number FROM django_jobs_deliveryattempt a
            WHERE a.id = g.attempt_id AND a.delivery_id = d.id AND (a.outcome IS NULL OR a.outcome = 'lost'))))
    RETURNING d.id, d.destination, d.redispatch, d.ordering_key, d.key_seq
),
closed AS (
    UPDATE django_jobs_deliveryattempt a
    SET finished_at = clock.now, outcome = 'confirmed', status = g.status
    FROM given g, clock WHERE a.id = g.attempt_id AND (a.outcome IS NULL OR a.outcome = 'lost')
),
next AS MATERIALIZED (
    SELECT following.id
    FROM marked m
    CROSS JOIN LATERAL (
        SELECT w.id, w.state FROM django_jobs_delivery w
        WHERE w.destination = m.destination AND w.ordering_key = m.ordering_key AND NOT (w.ordering_key = '')
            AND w.redispatch = 0 AND w.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND w.key_seq > m.key_seq
        ORDER BY w.key_seq LIMIT 1
    ) AS following
    WHERE m.redispatch = 0 AND m.ordering_key <> '' AND following.state = 'waiting'
),
promoted AS (
    UPDATE django_jobs_delivery n
    SET state = 'pending', available_at = clock.now, revision = n.revision + 1
    FROM next, clock WHERE n.id = next.id AND n.state = 'waiting'
    RETURNING n.id
)
SELECT m.id, (SELECT COUNT(*) FROM promoted) AS promoted FROM marked m
