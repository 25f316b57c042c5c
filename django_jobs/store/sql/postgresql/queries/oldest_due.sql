-- purpose: find, per queue, lane and priority, the job that has been due for longest: exact, however many wait
-- guard: none; one probe per queue, lane and priority that waits; set-aside jobs do not count; locks nothing
-- index: django_jobs_job_ready, django_jobs_job_due
WITH RECURSIVE clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
ready AS (
    (SELECT j.queue_name, j.lane FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation = '' ORDER BY j.queue_name, j.lane LIMIT 1)
    UNION ALL
    SELECT following.queue_name, following.lane FROM ready q CROSS JOIN LATERAL (
        SELECT j.queue_name, j.lane FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND (j.queue_name, j.lane) > (q.queue_name, q.lane)
        ORDER BY j.queue_name, j.lane LIMIT 1
    ) AS following
),
later AS (
    (SELECT j.queue_name FROM django_jobs_job j
    WHERE j.state IN ('scheduled', 'failed') ORDER BY j.queue_name LIMIT 1)
    UNION ALL
    SELECT following.queue_name FROM later q CROSS JOIN LATERAL (
        SELECT j.queue_name FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.queue_name > q.queue_name ORDER BY j.queue_name LIMIT 1
    ) AS following
)
SELECT q.queue_name, q.lane, first.job_type, first.priority, first.available_at, clock.now
FROM clock, ready q
CROSS JOIN LATERAL (
    WITH RECURSIVE level AS (
        (SELECT j.job_type, j.priority, j.available_at FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name AND j.lane = q.lane
        ORDER BY j.priority DESC, j.available_at, j.id LIMIT 1)
        UNION ALL
        SELECT lower.job_type, lower.priority, lower.available_at FROM level CROSS JOIN LATERAL (
            SELECT j.job_type, j.priority, j.available_at FROM django_jobs_job j
            WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name AND j.lane = q.lane
                AND j.priority < level.priority
            ORDER BY j.priority DESC, j.available_at, j.id LIMIT 1
        ) AS lower
    )
    SELECT level.job_type, level.priority, level.available_at FROM level
) AS first
UNION ALL
SELECT q.queue_name, '', first.job_type, first.priority, first.available_at, clock.now
FROM clock, later q, unnest(ARRAY[1, 0, -1]) AS b(band)
CROSS JOIN LATERAL (
    SELECT j.job_type, j.priority, j.available_at FROM django_jobs_job j
    WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name AND j.lane = ''
        AND CASE WHEN j.priority > 0 THEN 1 WHEN j.priority < 0 THEN -1 ELSE 0 END = b.band
    ORDER BY j.available_at LIMIT 1
) AS first
WHERE first.available_at <= clock.now
