-- purpose: see per destination when something is due, and whether it is down; and whether anything waits in order or was lost
-- guard: none; reads only
-- index: django_jobs_delivery_ready, django_jobs_delivery_suspect, django_jobs_delivery_head, django_jobs_delivery_held
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT q.name AS destination, (
        SELECT d.available_at FROM django_jobs_delivery d
        WHERE d.state = 'pending' AND d.destination = q.name AND d.lost_count = 0
        ORDER BY d.available_at LIMIT 1) AS available_at,
    (
        SELECT s.available_at FROM django_jobs_delivery s
        WHERE s.state = 'pending' AND s.destination = q.name AND s.lost_count > 0
        ORDER BY s.available_at LIMIT 1) AS suspect_at,
    b.failures, b.open_until, clock.now,
    (
        SELECT h.key_seq FROM django_jobs_delivery h
        WHERE h.destination = q.name AND NOT (h.ordering_key = '') AND h.redispatch = 0
            AND h.state IN ('waiting', 'pending', 'claimed', 'dead_lettered')
        ORDER BY h.ordering_key, h.key_seq LIMIT 1  -- not EXISTS, for which the planner would read the whole index
    ) IS NOT NULL AS in_order,
    EXISTS (
        SELECT 1 FROM django_jobs_delivery c
        WHERE c.state IN ('claimed', 'dead_lettered') AND c.state = 'claimed' AND c.lease_expires_at <= clock.now
            AND NOT EXISTS (  -- whether a silent worker is gone is judged by workers that beat
                SELECT 1 FROM django_jobs_worker w
                WHERE w.id = c.lease_owner AND w.stopped_at IS NULL
                    AND w.heartbeat_at <= clock.now - %(silent_after)s::interval)) AS some_lost
FROM clock, unnest(%(destinations)s::text[]) AS q(name)
LEFT JOIN django_jobs_destination b ON b.name = q.name
