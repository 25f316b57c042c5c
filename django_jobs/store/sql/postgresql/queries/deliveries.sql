-- purpose: count deliveries that are not finished, by destination and state, with the time of the oldest event
-- guard: none; each look takes at most the limit, per destination where an index leads to one; locks nothing
-- index: django_jobs_delivery_ready, django_jobs_delivery_head, django_jobs_delivery_held
WITH RECURSIVE clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
due AS (
    (SELECT d.destination FROM django_jobs_delivery d WHERE d.state = 'pending' ORDER BY d.destination LIMIT 1)
    UNION ALL
    SELECT following.destination FROM due q CROSS JOIN LATERAL (
        SELECT d.destination FROM django_jobs_delivery d
        WHERE d.state = 'pending' AND d.destination > q.destination ORDER BY d.destination LIMIT 1
    ) AS following
),
behind AS (
    (SELECT d.destination FROM django_jobs_delivery d
    WHERE d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.redispatch = 0 AND NOT (d.ordering_key = '')
    ORDER BY d.destination LIMIT 1)
    UNION ALL
    SELECT following.destination FROM behind q CROSS JOIN LATERAL (
        SELECT d.destination FROM django_jobs_delivery d
        WHERE d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.redispatch = 0
            AND NOT (d.ordering_key = '') AND d.destination > q.destination
        ORDER BY d.destination LIMIT 1
    ) AS following
),
seen AS (
    SELECT d.destination, 'pending' AS stands, d.created_at FROM due q CROSS JOIN LATERAL (
        SELECT d.destination, d.created_at FROM django_jobs_delivery d
        WHERE d.state = 'pending' AND d.destination = q.destination LIMIT %(limit)s::bigint
    ) AS d
    UNION ALL
    SELECT d.destination, 'pending', d.created_at FROM behind q CROSS JOIN LATERAL (
        SELECT d.destination, d.created_at, d.state FROM django_jobs_delivery d
        WHERE d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.redispatch = 0
            AND NOT (d.ordering_key = '') AND d.destination = q.destination
        LIMIT %(limit)s::bigint
    ) AS d WHERE d.state = 'waiting'
    UNION ALL
    (SELECT d.destination, 'pending', d.created_at FROM django_jobs_delivery d
    WHERE d.state = 'claimed' LIMIT %(limit)s::bigint)
    UNION ALL
    (SELECT d.destination, 'dead_lettered', d.created_at FROM django_jobs_delivery d
    WHERE d.state = 'dead_lettered' ORDER BY d.id DESC LIMIT %(limit)s::bigint)
)
SELECT s.destination, s.stands, count(*) AS many, min(s.created_at) AS created_at, clock.now
FROM seen s, clock
GROUP BY s.destination, s.stands, clock.now
