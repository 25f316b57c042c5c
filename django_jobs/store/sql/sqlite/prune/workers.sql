-- purpose: delete rows of workers that have ended, or have not been heard of, long ago
-- guard: no job names the worker as its holder
-- index: django_jobs_job_held; the table is small
DELETE FROM django_jobs_worker
WHERE id IN (
    SELECT w.id FROM django_jobs_worker w
    WHERE COALESCE(w.stopped_at, w.heartbeat_at) < %(workers_before)s AND w.heartbeat_at < %(workers_before)s
        AND NOT EXISTS (SELECT 1 FROM django_jobs_job j WHERE j.state = 'running' AND j.lease_owner = w.id)
    ORDER BY w.id LIMIT %(limit)s)
RETURNING id
