-- purpose: let ready jobs that have arrived stand behind the one that has the turn of their serial key
-- guard: ready and just arrived, of keys whose turn the caller holds and somebody has; never that job; held rows are skipped
-- index: django_jobs_job_serial
WITH others AS MATERIALIZED (
    SELECT l.id FROM django_jobs_job l
    WHERE l.serial_key = ANY(%(keys)s::text[]) AND l.serial_key <> '' AND l.state IN ('scheduled', 'queued', 'failed')
        AND l.state = 'queued' AND l.lane = '~' AND l.id <> ALL(%(jobs)s::uuid[])
    LIMIT %(limit)s::bigint
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE django_jobs_job j
SET lane = '~~', revision = j.revision + 1
FROM others WHERE j.id = others.id
RETURNING j.id
