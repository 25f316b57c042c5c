-- invariant: L3
-- meaning: no batch stays open for longer than the patience after the last of its members has ended
-- about: row
SELECT ended.id
FROM (
    SELECT b.id, COALESCE(MAX(COALESCE(j.finished_at, j.dead_at)), b.created_at) AS since
    FROM django_jobs_batch b
    LEFT JOIN django_jobs_job j ON j.batch_id = b.id
    WHERE b.closed_at IS NULL
    GROUP BY b.id, b.on_dead, b.created_at
    HAVING COUNT(CASE WHEN j.id IS NOT NULL AND j.finished_at IS NULL
        AND NOT (b.on_dead = 'continue' AND j.state = 'dead_lettered') THEN 1 END) = 0
) AS ended
WHERE SECONDS_UNTIL_NOW(ended.since) > PATIENCE
