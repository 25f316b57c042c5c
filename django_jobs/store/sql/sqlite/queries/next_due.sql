-- purpose: read when the next waiting job of these queues becomes due, and the time
-- guard: none; set-aside jobs do not count
-- index: django_jobs_job_due
SELECT min(j.available_at) AS available_at, %(now)s AS now
FROM django_jobs_job j
WHERE j.state IN ('scheduled', 'failed') AND j.queue_name IN (SELECT value FROM json_each(%(queues)s)) AND j.lane = ''
