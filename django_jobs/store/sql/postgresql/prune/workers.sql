-- purpose: delete rows of workers that have ended, or have not been heard of, long ago
-- guard: no job names the worker as its holder; rows that others hold are skipped
-- index: django_jobs_job_held; the table is small
DELETE FROM django_jobs_worker w
USING (
    SELECT id FROM django_jobs_worker
    WHERE COALESCE(stopped_at, heartbeat_at) < %(workers_before)s::timestamptz AND heartbeat_at < %(workers_before)s::timestamptz
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_job j WHERE j.state = 'running' AND j.lease_owner = django_jobs_worker.id)
    ORDER BY id LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
) AS old
WHERE w.id = old.id
RETURNING w.id
