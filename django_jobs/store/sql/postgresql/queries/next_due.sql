-- purpose: read when the next waiting job of these queues becomes due, and the time
-- guard: none; set-aside jobs do not count; locks nothing
-- index: django_jobs_job_due
SELECT min(first.available_at) AS available_at, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
FROM unnest(%(queues)s::text[]) AS q(queue_name), unnest(ARRAY[1, 0, -1]) AS b(band)
CROSS JOIN LATERAL (
    SELECT j.available_at FROM django_jobs_job j
    WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name AND j.lane = ''
        AND CASE WHEN j.priority > 0 THEN 1 WHEN j.priority < 0 THEN -1 ELSE 0 END = b.band
    ORDER BY j.available_at
    LIMIT 1
) AS first
