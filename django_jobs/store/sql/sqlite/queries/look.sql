-- purpose: find out with one read whether an idle worker has anything to do, or when it will have
-- guard: none, it only reads; of each queue no more than the first rows are looked at
-- index: django_jobs_job_ready, django_jobs_job_watched, django_jobs_job_due
SELECT (julianday(min(waiting.available_at)) - julianday(%(now)s)) * 86400.0 AS seconds,
    EXISTS (
        SELECT 1 FROM django_jobs_job
        WHERE state IN ('scheduled', 'failed') AND queue_name IN (SELECT value FROM json_each(%(queues)s)) AND lane > ''
    ) AS aside
FROM (
    SELECT * FROM (
        SELECT available_at FROM django_jobs_job
        WHERE state = 'queued' AND isolation = ''
            AND (%(everywhere)s OR queue_name IN (SELECT value FROM json_each(%(queues)s)))
        ORDER BY queue_name, lane, priority DESC, available_at, id
        LIMIT 100)
    UNION ALL
    SELECT available_at FROM django_jobs_job
    WHERE state = 'queued' AND isolation <> '' AND isolation > ''
    UNION ALL
    SELECT available_at FROM django_jobs_job
    WHERE state IN ('scheduled', 'failed') AND queue_name IN (SELECT value FROM json_each(%(queues)s)) AND lane = ''
) AS waiting
