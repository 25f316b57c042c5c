-- purpose: find the lanes in which jobs of these queues are set aside
-- guard: none
-- index: django_jobs_job_due
SELECT DISTINCT j.queue_name, j.lane
FROM django_jobs_job j
WHERE j.state IN ('scheduled', 'failed') AND j.lane > '' AND substr(j.lane, 1, 1) = '!'
    AND j.queue_name IN (SELECT value FROM json_each(%(queues)s))
