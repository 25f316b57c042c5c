-- purpose: end jobs whose usefulness has passed before they could start
-- guard: state 'scheduled', 'queued' or 'failed', and the useful time is over; rows that others hold are skipped
-- index: django_jobs_job_ready, django_jobs_job_suspect, django_jobs_job_due: waiting jobs only
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
late AS MATERIALIZED (
    SELECT j.id FROM django_jobs_job j, clock
    WHERE ((j.state = 'queued' AND j.isolation = '') OR (j.state = 'queued' AND j.isolation <> '')
            OR j.state IN ('scheduled', 'failed'))
        AND j.useful_until <= clock.now
    LIMIT %(limit)s::bigint
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE django_jobs_job j
SET state = 'dead_lettered', revision = j.revision + 1, dead_at = clock.now, dead_reason = 'expired'
FROM late, clock WHERE j.id = late.id
RETURNING j.id, j.job_type, j.owner
