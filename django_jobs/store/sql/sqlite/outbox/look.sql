-- purpose: see per destination when something is due, and whether it is down; and whether anything waits in order or was lost
-- guard: none; reads only
-- index: django_jobs_delivery_ready, django_jobs_delivery_suspect, django_jobs_delivery_head, django_jobs_delivery_held
SELECT q.value AS destination, (
        SELECT d.available_at FROM django_jobs_delivery d
        WHERE d.state = 'pending' AND d.destination = q.value AND d.lost_count = 0
        ORDER BY d.available_at LIMIT 1) AS available_at,
    (
        SELECT s.available_at FROM django_jobs_delivery s
        WHERE s.state = 'pending' AND s.destination = q.value AND s.lost_count > 0
        ORDER BY s.available_at LIMIT 1) AS suspect_at,
    b.failures, b.open_until, %(now)s AS now,
    EXISTS (
        SELECT 1 FROM django_jobs_delivery h
        WHERE h.destination = q.value AND NOT (h.ordering_key = '') AND h.redispatch = 0 AND h.state IN ('waiting', 'pending', 'claimed', 'dead_lettered')) AS in_order,
    EXISTS (
        SELECT 1 FROM django_jobs_delivery c
        WHERE c.state IN ('claimed', 'dead_lettered') AND c.state = 'claimed' AND c.lease_expires_at <= %(now)s
            AND NOT EXISTS (
                SELECT 1 FROM django_jobs_worker w
                WHERE w.id = c.lease_owner AND w.stopped_at IS NULL
                    AND w.heartbeat_at <= django_jobs_add(%(now)s, -%(silent_after)s))) AS some_lost
FROM json_each(%(destinations)s) AS q
LEFT JOIN django_jobs_destination b ON b.name = q.value
