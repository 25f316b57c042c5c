-- purpose: settle a delivery that is dead or was tried in vain as not to be delivered, and let the next of its ordering key go
-- guard: state 'dead_lettered', or 'pending' and tried, in the revision that was seen
-- index: primary key; django_jobs_delivery_head
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
marked AS (
    UPDATE django_jobs_delivery d
    SET state = 'discarded', revision = d.revision + 1, available_at = NULL, dead_at = NULL, dead_reason = ''
    WHERE d.id = %(delivery_id)s::uuid AND (d.state = 'dead_lettered' OR (d.state = 'pending' AND d.fence > 0))
        AND d.revision = %(revision)s::bigint
    RETURNING d.id, d.destination, d.redispatch, d.ordering_key, d.key_seq
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
