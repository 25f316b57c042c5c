-- purpose: find, per queue and lane, the priority whose first job has been due for longest
-- guard: none; one probe per priority that waits; locks nothing
-- index: django_jobs_job_ready
SELECT q.queue_name, q.lane, best.priority
FROM unnest(%(queues)s::text[], %(lanes)s::text[]) AS q(queue_name, lane)
CROSS JOIN LATERAL (
    WITH RECURSIVE level AS (
        (SELECT j.priority, j.available_at FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name AND j.lane = q.lane
        ORDER BY j.priority DESC, j.available_at, j.id LIMIT 1)
        UNION ALL
        SELECT lower.priority, lower.available_at
        FROM level CROSS JOIN LATERAL (
            SELECT j.priority, j.available_at FROM django_jobs_job j
            WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name AND j.lane = q.lane
                AND j.priority < level.priority
            ORDER BY j.priority DESC, j.available_at, j.id LIMIT 1
        ) AS lower
    )
    SELECT level.priority FROM level ORDER BY level.available_at, level.priority DESC LIMIT 1
) AS best
