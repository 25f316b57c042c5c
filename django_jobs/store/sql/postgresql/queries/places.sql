-- purpose: count how many more jobs of each queue may run at once
-- guard: none; what is decided with it is counted again under the queue's lock
-- index: django_jobs_job_held
SELECT q.queue_name, q.at_most - (
    SELECT count(*) FROM django_jobs_job r WHERE r.state = 'running' AND r.queue_name = q.queue_name) AS places
FROM unnest(%(queues)s::text[], %(limits)s::int[]) AS q(queue_name, at_most)
