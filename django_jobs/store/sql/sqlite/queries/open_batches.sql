-- purpose: count the open batches, those among them whose owner was told of dead letters, and find the oldest
-- guard: none; one look at the limit; locks nothing
-- index: django_jobs_batch_open
SELECT count(*) AS many, count(b.told_at) AS told, min(b.created_at) AS created_at, %(now)s AS now
FROM (
    SELECT b.told_at, b.created_at FROM django_jobs_batch b
    WHERE b.closed_at IS NULL ORDER BY b.id LIMIT %(limit)s
) AS b
HAVING count(*) > 0
