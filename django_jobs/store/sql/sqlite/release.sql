-- purpose: give a job back that this worker will not finish
-- guard: running under this attempt, and no request of it is still inside its deadline
-- index: primary key
UPDATE django_jobs_job
SET state = 'queued', lane = resource, revision = revision + 1, free_count = free_count + 1,
    attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL
WHERE id = %(job_id)s AND state = 'running' AND attempt_id = %(attempt_id)s
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e JOIN django_jobs_send s ON s.effect_id = e.id
        WHERE e.job_id = django_jobs_job.id AND s.attempt_id = %(attempt_id)s AND s.outcome IS NULL
            AND s.deadline_at > %(now)s)
RETURNING id, %(now)s AS finished_at
-- then
UPDATE django_jobs_attempt SET outcome = 'released', finished_at = %(now)s, message = %(message)s
WHERE id = %(attempt_id)s
