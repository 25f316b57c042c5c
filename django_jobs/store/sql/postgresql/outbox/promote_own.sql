-- purpose: let the waiting deliveries of an event go that nothing unfinished precedes any more
-- guard: state 'waiting', asked again under the row lock
-- index: django_jobs_delivery_once, django_jobs_delivery_head
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
free AS MATERIALIZED (
    SELECT w.id FROM django_jobs_delivery w
    WHERE w.event_id = %(event_id)s::uuid AND w.redispatch = 0 AND w.state = 'waiting'
        AND (
            SELECT d.key_seq FROM django_jobs_delivery d
            WHERE d.destination = w.destination AND d.ordering_key = w.ordering_key
                AND NOT (d.ordering_key = '') AND d.redispatch = 0
                AND d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.key_seq < w.key_seq
            ORDER BY d.key_seq LIMIT 1) IS NULL
)
UPDATE django_jobs_delivery n
SET state = 'pending', available_at = clock.now, revision = n.revision + 1
FROM free, clock WHERE n.id = free.id AND n.state = 'waiting'
RETURNING n.id
