-- purpose: find the serial keys of ready jobs of which nobody has looked yet whose turn it is
-- guard: none; so many rows per queue at most; locks nothing
-- index: django_jobs_job_ready, django_jobs_job_watched
SELECT found.serial_key
FROM unnest(%(queues)s::text[]) AS q(queue_name)
CROSS JOIN LATERAL (
    SELECT j.serial_key FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name AND j.lane = '~'
    ORDER BY j.priority DESC, j.available_at, j.id
    LIMIT %(limit)s::bigint
) AS found
UNION
SELECT j.serial_key FROM django_jobs_job j
WHERE j.state = 'queued' AND j.isolation <> '' AND j.isolation > '' AND j.lane = '~'
