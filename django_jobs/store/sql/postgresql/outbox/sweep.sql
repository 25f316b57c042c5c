-- purpose: let waiting heads go that no mark promoted: walk over the ordering keys of a destination, one probe per key
-- guard: the first unfinished delivery of its key, in state 'waiting', asked again under the row lock
-- index: django_jobs_delivery_head
WITH RECURSIVE clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
keys AS (
    SELECT 1 AS n, (
        SELECT d.ordering_key FROM django_jobs_delivery d
        WHERE d.destination = %(destination)s::text AND NOT (d.ordering_key = '') AND d.redispatch = 0
            AND d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.ordering_key > %(after)s::text
        ORDER BY d.ordering_key LIMIT 1) AS ordering_key
    UNION ALL
    SELECT k.n + 1, (
        SELECT d.ordering_key FROM django_jobs_delivery d
        WHERE d.destination = %(destination)s::text AND NOT (d.ordering_key = '') AND d.redispatch = 0
            AND d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.ordering_key > k.ordering_key
        ORDER BY d.ordering_key LIMIT 1)
    FROM keys k WHERE k.ordering_key IS NOT NULL AND k.n < %(limit)s::bigint
),
heads AS MATERIALIZED (
    SELECT h.id FROM keys k
    CROSS JOIN LATERAL (
        SELECT d.id, d.state FROM django_jobs_delivery d
        WHERE d.destination = %(destination)s::text AND d.ordering_key = k.ordering_key AND NOT (d.ordering_key = '')
            AND d.redispatch = 0 AND d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered')
        ORDER BY d.key_seq LIMIT 1
    ) AS h
    WHERE h.state = 'waiting'
),
promoted AS (
    UPDATE django_jobs_delivery n
    SET state = 'pending', available_at = clock.now, revision = n.revision + 1
    FROM heads, clock WHERE n.id = heads.id AND n.state = 'waiting'
    RETURNING n.id
)
SELECT (SELECT ordering_key FROM keys ORDER BY n DESC LIMIT 1) AS last_key, (SELECT COUNT(*) FROM promoted) AS promoted
