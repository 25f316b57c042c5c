-- purpose: set aside queued jobs of kinds that nobody may or can run now, so that no claim walks over them
-- guard: state 'queued', of a kind that is not runnable
-- index: django_jobs_job_ready, django_jobs_job_watched
UPDATE django_jobs_job
SET state = 'scheduled', revision = revision + 1, lane = '!' || job_type || ' ' || payload_version
WHERE id IN (
    SELECT j.id FROM django_jobs_job j
    WHERE j.state = 'queued' AND (j.isolation = '' OR NOT (j.isolation = '')) AND j.lane IN (SELECT value FROM json_each(%(lanes)s))
        AND j.queue_name IN (SELECT value FROM json_each(%(queues)s))
        AND j.job_type || ' ' || j.payload_version NOT IN (SELECT value FROM json_each(%(runnable)s))
    LIMIT 2000)
RETURNING id, job_type || ' ' || payload_version AS kind
