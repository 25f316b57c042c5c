-- purpose: count deliveries that are not finished, by destination and state, with the time of the oldest event
-- guard: none; what waits is read whole
-- index: django_jobs_delivery_ready, django_jobs_delivery_head, django_jobs_delivery_held
SELECT s.destination, s.stands, count(*) AS many, min(s.created_at) AS created_at, %(now)s AS now
FROM (
    SELECT d.destination, 'pending' AS stands, d.created_at FROM django_jobs_delivery d WHERE d.state = 'pending'
    UNION ALL
    SELECT d.destination, 'pending', d.created_at FROM django_jobs_delivery d
    WHERE d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.redispatch = 0 AND NOT (d.ordering_key = '')
        AND d.state = 'waiting'
    UNION ALL
    SELECT d.destination, 'pending', d.created_at FROM django_jobs_delivery d
    WHERE d.state IN ('claimed', 'dead_lettered') AND d.state = 'claimed'
    UNION ALL
    SELECT * FROM (
        SELECT d.destination, 'dead_lettered', d.created_at FROM django_jobs_delivery d
        WHERE d.state IN ('claimed', 'dead_lettered') AND d.state = 'dead_lettered' ORDER BY d.id DESC LIMIT %(limit)s)
) AS s
GROUP BY s.destination, s.stands
