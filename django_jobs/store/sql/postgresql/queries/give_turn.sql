-- purpose: move the jobs that have the turn of their serial keys to where claims find them
-- guard: ready, and waiting for its turn; the caller holds the turn
-- index: primary key
UPDATE django_jobs_job j
SET lane = j.resource, revision = j.revision + 1
WHERE j.id = ANY(%(jobs)s::uuid[]) AND j.state = 'queued' AND j.lane IN ('~', '~~')
RETURNING j.id, j.serial_key
