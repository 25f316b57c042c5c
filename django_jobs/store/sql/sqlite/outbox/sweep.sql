-- purpose: let waiting heads go that no mark promoted: walk over the ordering keys of a destination, one probe per key
-- guard: the first unfinished delivery of its key, in state 'waiting', asked again under the row lock
-- index: django_jobs_delivery_head
UPDATE django_jobs_delivery
SET state = 'pending', available_at = %(now)s, revision = revision + 1
WHERE state = 'waiting' AND id IN (
    SELECT (
        SELECT d.id FROM django_jobs_delivery d
        WHERE d.destination = %(destination)s AND d.ordering_key = k.ordering_key AND NOT (d.ordering_key = '')
            AND d.redispatch = 0 AND d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered')
        ORDER BY d.key_seq LIMIT 1)
    FROM (
        SELECT DISTINCT o.ordering_key FROM django_jobs_delivery o
        WHERE o.destination = %(destination)s AND NOT (o.ordering_key = '') AND o.redispatch = 0 AND o.state IN ('waiting', 'pending', 'claimed', 'dead_lettered')
            AND o.ordering_key > %(after)s
        ORDER BY o.ordering_key LIMIT %(limit)s) AS k)
-- then
SELECT CASE WHEN COUNT(*) = %(limit)s THEN MAX(k.ordering_key) END AS last_key, changes() AS promoted
FROM (
    SELECT DISTINCT o.ordering_key FROM django_jobs_delivery o
    WHERE o.destination = %(destination)s AND NOT (o.ordering_key = '') AND o.redispatch = 0 AND o.state IN ('waiting', 'pending', 'claimed', 'dead_lettered')
        AND o.ordering_key > %(after)s
    ORDER BY o.ordering_key LIMIT %(limit)s) AS k
