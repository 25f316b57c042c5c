-- purpose: count the dead letters that hold their serial key, by queue, type and band, with the time of the oldest
-- guard: none; of dead letters at most the limit, the newest; locks nothing
-- index: django_jobs_job_held, the unique index of the turns by key
SELECT d.queue_name, d.job_type, (d.priority > 0) - (d.priority < 0) AS band, count(*) AS many,
    min(d.dead_at) AS dead_at, %(now)s AS now
FROM (
    SELECT j.id, j.queue_name, j.job_type, j.priority, j.serial_key, j.serial_skips, j.resolution, j.dead_at
    FROM django_jobs_job j WHERE j.state = 'dead_lettered' ORDER BY j.id DESC LIMIT %(limit)s
) AS d
JOIN django_jobs_serialturn t ON t.key = d.serial_key AND t.job_id = d.id
WHERE d.resolution IS NULL AND NOT (d.serial_key = '') AND NOT d.serial_skips
GROUP BY d.queue_name, d.job_type, band
