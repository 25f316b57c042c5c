-- purpose: find the resources for which jobs of these queues wait
-- guard: none
-- index: django_jobs_job_ready, django_jobs_job_watched
SELECT DISTINCT j.queue_name, j.lane
FROM django_jobs_job j
WHERE j.state = 'queued' AND (j.isolation = '' OR NOT (j.isolation = '')) AND j.lane > ''
    AND j.queue_name IN (SELECT value FROM json_each(%(queues)s))
