-- purpose: end jobs whose usefulness has passed before they could start
-- guard: state 'scheduled', 'queued' or 'failed', and the useful time is over
-- index: django_jobs_job_ready, django_jobs_job_suspect, django_jobs_job_due: waiting jobs only
UPDATE django_jobs_job
SET state = 'dead_lettered', revision = revision + 1, dead_at = %(now)s, dead_reason = 'expired'
WHERE id IN (
    SELECT j.id FROM django_jobs_job j
    WHERE ((j.state = 'queued' AND j.isolation = '') OR (j.state = 'queued' AND NOT (j.isolation = ''))
            OR j.state IN ('scheduled', 'failed'))
        AND j.useful_until <= %(now)s
    LIMIT %(limit)s)
RETURNING id, job_type, owner
