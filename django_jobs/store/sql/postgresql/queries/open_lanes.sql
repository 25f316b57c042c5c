-- purpose: find the resources for which jobs of these queues wait
-- guard: none; one probe per queue and resource that waits; locks nothing
-- index: django_jobs_job_ready, django_jobs_job_watched
SELECT q.queue_name, found.lane
FROM unnest(%(queues)s::text[]) AS q(queue_name)
CROSS JOIN LATERAL (
    WITH RECURSIVE walk AS (
        (SELECT j.lane FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name AND j.lane > ''
        ORDER BY j.lane LIMIT 1)
        UNION ALL
        SELECT next.lane
        FROM walk CROSS JOIN LATERAL (
            SELECT j.lane FROM django_jobs_job j
            WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name AND j.lane > walk.lane
            ORDER BY j.lane LIMIT 1
        ) AS next
    )
    SELECT walk.lane FROM walk
) AS found
UNION
SELECT j.queue_name, j.lane FROM django_jobs_job j
WHERE j.state = 'queued' AND j.isolation <> '' AND j.isolation > '' AND j.lane > '' AND j.queue_name = ANY(%(queues)s::text[])
