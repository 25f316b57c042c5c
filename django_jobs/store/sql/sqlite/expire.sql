-- purpose: end jobs whose usefulness has passed before they could start
-- guard: state 'scheduled', 'queued' or 'failed', and the useful time is over
-- index: none of its own; a bounded look by maintenance
UPDATE django_jobs_job
SET state = 'dead_lettered', revision = revision + 1, dead_at = %(now)s, dead_reason = 'expired'
WHERE id IN (
    SELECT j.id FROM django_jobs_job j
    WHERE j.state IN ('scheduled', 'queued', 'failed') AND j.useful_until <= %(now)s
    LIMIT %(limit)s)
RETURNING id, job_type, owner
