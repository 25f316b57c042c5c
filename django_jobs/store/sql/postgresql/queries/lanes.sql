-- purpose: find the lanes in which jobs of these queues are set aside
-- guard: none; one probe per lane; locks nothing
-- index: django_jobs_job_due
SELECT q.queue_name, found.lane
FROM unnest(%(queues)s::text[]) AS q(queue_name)
CROSS JOIN LATERAL (
    WITH RECURSIVE walk AS (
        (SELECT j.lane FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name AND j.lane > ''
        ORDER BY j.lane LIMIT 1)
        UNION ALL
        SELECT next.lane
        FROM walk CROSS JOIN LATERAL (
            SELECT j.lane FROM django_jobs_job j
            WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name AND j.lane > walk.lane
            ORDER BY j.lane LIMIT 1
        ) AS next
    )
    SELECT walk.lane FROM walk WHERE left(walk.lane, 1) = '!'
) AS found
