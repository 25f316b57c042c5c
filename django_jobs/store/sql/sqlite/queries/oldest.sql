-- purpose: find, per queue and lane, the priority whose first job has been due for longest
-- guard: none
-- index: django_jobs_job_ready
SELECT queue_name, lane, priority FROM (
    SELECT j.queue_name, j.lane, j.priority,
        row_number() OVER (PARTITION BY j.queue_name, j.lane ORDER BY j.available_at, j.priority DESC) AS nth
    FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation = '' AND j.lane IN (SELECT value FROM json_each(%(lanes)s))
        AND j.queue_name IN (SELECT value FROM json_each(%(queues)s))
) AS ranked
WHERE nth = 1
