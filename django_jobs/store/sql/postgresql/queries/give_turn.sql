-- purpose: move the jobs that have the turn of their serial keys to where claims find them
-- guard: ready, and waiting for its turn; the caller holds the turn; rows that others hold are left to the next look
-- index: primary key
WITH own AS MATERIALIZED (
    SELECT l.id FROM django_jobs_job l
    WHERE l.id = ANY(%(jobs)s::uuid[]) AND l.state = 'queued' AND l.lane IN ('~', '~~')
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE django_jobs_job j
SET lane = j.resource, revision = j.revision + 1
FROM own WHERE j.id = own.id
RETURNING j.id, j.serial_key
