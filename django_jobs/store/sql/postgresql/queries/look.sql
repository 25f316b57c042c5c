-- purpose: find out with one read whether an idle worker has anything to do, or when it will have
-- guard: none, it only reads; of each queue no more than the first rows are looked at
-- index: django_jobs_job_ready, django_jobs_job_watched, django_jobs_job_due
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
waiting AS (
    SELECT found.available_at
    FROM unnest(%(queues)s::text[]) AS q(queue_name)
    CROSS JOIN LATERAL (
        SELECT j.available_at FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name
        ORDER BY j.lane, j.priority DESC, j.available_at, j.id
        LIMIT 100
    ) AS found
    WHERE NOT %(everywhere)s::boolean
    UNION ALL
    SELECT found.available_at
    FROM (
        SELECT j.available_at FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND %(everywhere)s::boolean
        ORDER BY j.queue_name, j.lane, j.priority DESC, j.available_at, j.id
        LIMIT 100
    ) AS found
    UNION ALL
    SELECT j.available_at FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation <> '' AND j.isolation > ''
    UNION ALL
    SELECT found.available_at
    FROM unnest(%(queues)s::text[]) AS q(queue_name), unnest(ARRAY[1, 0, -1]) AS b(band)
    CROSS JOIN LATERAL (
        SELECT j.available_at FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name AND j.lane = ''
            AND CASE WHEN j.priority > 0 THEN 1 WHEN j.priority < 0 THEN -1 ELSE 0 END = b.band
        ORDER BY j.available_at
        LIMIT 1
    ) AS found
)
SELECT EXTRACT(EPOCH FROM (min(waiting.available_at) - (SELECT now FROM clock)))::float8 AS seconds,
    EXISTS (
        SELECT 1
        FROM unnest(%(queues)s::text[]) AS q(queue_name)
        CROSS JOIN LATERAL (
            SELECT 1 FROM django_jobs_job j
            WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name AND j.lane > ''
            ORDER BY j.lane
            LIMIT 1
        ) AS found
    ) AS aside
FROM waiting
