-- purpose: let a job that waits for its time start now
-- guard: scheduled or failed at the revision that was acknowledged, still useful, not set aside
-- index: primary key
UPDATE django_jobs_job
SET state = 'queued', lane = CASE WHEN serial_key <> '' THEN '~' ELSE resource END, revision = revision + 1, available_at = MIN(available_at, %(now)s),
    generation_started_at = MIN(generation_started_at, %(now)s)
WHERE id = %(job_id)s AND state IN ('scheduled', 'failed') AND revision = %(revision)s
    AND substr(lane, 1, 1) <> '!' AND (useful_until IS NULL OR useful_until > %(now)s)
RETURNING id, state, queue_name
