-- purpose: count how many more jobs of each queue may run at once
-- guard: none; what is decided with it is counted again in the transaction of the claim
-- index: django_jobs_job_held
SELECT q.value AS queue_name, l.value - (
    SELECT count(*) FROM django_jobs_job r WHERE r.state = 'running' AND r.queue_name = q.value) AS places
FROM json_each(%(queues)s) q JOIN json_each(%(limits)s) l ON l.key = q.key
