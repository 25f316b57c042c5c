-- purpose: count the open batches, those among them whose owner was told of dead letters, and find the oldest
-- guard: none; one look at the limit; locks nothing
-- index: django_jobs_batch_open
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT count(b.id) AS many, count(b.told_at) AS told, min(b.created_at) AS created_at, clock.now
FROM clock LEFT JOIN (
    SELECT b.id, b.told_at, b.created_at FROM django_jobs_batch b
    WHERE b.closed_at IS NULL ORDER BY b.id LIMIT %(limit)s::bigint
) AS b ON true
GROUP BY clock.now
HAVING count(b.id) > 0
