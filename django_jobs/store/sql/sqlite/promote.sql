-- purpose: move jobs that have become due to the ready index
-- guard: state 'scheduled' or 'failed', due
-- index: django_jobs_job_due
UPDATE django_jobs_job SET state = 'queued', revision = revision + 1
WHERE id IN (
    SELECT j.id FROM django_jobs_job j
    WHERE j.state IN ('scheduled', 'failed') AND j.queue_name IN (SELECT value FROM json_each(%(queues)s))
        AND j.available_at <= %(now)s
    ORDER BY j.available_at LIMIT %(limit)s)
RETURNING id
