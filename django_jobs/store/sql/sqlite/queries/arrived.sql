-- purpose: find the serial keys of ready jobs of which nobody has looked yet whose turn it is
-- guard: none
-- index: django_jobs_job_ready, django_jobs_job_watched
SELECT DISTINCT j.serial_key
FROM django_jobs_job j
WHERE j.state = 'queued' AND (j.isolation = '' OR NOT (j.isolation = '')) AND j.lane = '~'
    AND j.queue_name IN (SELECT value FROM json_each(%(queues)s))
LIMIT %(limit)s
