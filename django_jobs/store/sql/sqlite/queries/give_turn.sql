-- purpose: move the jobs that have the turn of their serial keys to where claims find them
-- guard: ready, and waiting for its turn; the caller's transaction is the only one that writes
-- index: primary key
UPDATE django_jobs_job
SET lane = resource, revision = revision + 1
WHERE id IN (SELECT value FROM json_each(%(jobs)s)) AND state = 'queued' AND lane IN ('~', '~~')
RETURNING id, serial_key
