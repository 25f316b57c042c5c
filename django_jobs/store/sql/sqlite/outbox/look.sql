-- purpose: see per destination when something is due, and whether it is down; and whether anything waits in order or was lost
-- guard: none; reads only
-- index: django_jobs_delivery_ready, django_jobs_delivery_head, django_jobs_delivery_held
SELECT q.value AS destination, (
        SELECT d.available_at FROM django_jobs_delivery d
        WHERE d.state = 'pending' AND d.destination = q.value ORDER BY d.available_at LIMIT 1) AS available_at,
    b.failures, b.open_until, %(now)s AS now,
    EXISTS (
        SELECT 1 FROM django_jobs_delivery h
        WHERE h.destination = q.value AND NOT (h.ordering_key = '') AND h.redispatch = 0 AND h.state IN ('waiting', 'pending', 'claimed', 'dead_lettered')) AS in_order,
    EXISTS (
        SELECT 1 FROM django_jobs_delivery c
        WHERE c.state IN ('claimed', 'dead_lettered') AND c.state = 'claimed' AND c.lease_expires_at <= %(now)s) AS some_lost
FROM json_each(%(destinations)s) AS q
LEFT JOIN django_jobs_destination b ON b.name = q.value
