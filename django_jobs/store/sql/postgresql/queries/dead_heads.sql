-- purpose: count the dead letters that hold their serial key, by queue, type and band, with the time of the oldest
-- guard: none; of dead letters at most the limit, the newest, and of those 1,000 with a key; locks nothing
-- index: django_jobs_job_held, the unique index of the turns by key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
dead AS MATERIALIZED (
    SELECT j.id, j.queue_name, j.job_type, j.priority, j.serial_key, j.serial_skips, j.resolution, j.dead_at
    FROM django_jobs_job j WHERE j.state = 'dead_lettered' ORDER BY j.id DESC LIMIT %(limit)s::bigint
),
holding AS MATERIALIZED (
    SELECT d.* FROM dead d WHERE d.resolution IS NULL AND d.serial_key <> '' AND NOT d.serial_skips LIMIT 1000
)
SELECT d.queue_name, d.job_type, sign(d.priority)::int AS band, count(*) AS many, min(d.dead_at) AS dead_at, clock.now
FROM clock, holding d
CROSS JOIN LATERAL (SELECT t.job_id FROM django_jobs_serialturn t WHERE t.key = d.serial_key OFFSET 0) AS turn
WHERE turn.job_id = d.id
GROUP BY d.queue_name, d.job_type, sign(d.priority), clock.now
