-- purpose: extend the lease because the progress has grown
-- guard: running under this attempt, and the new value is greater than the stored one
-- index: primary key
UPDATE django_jobs_job
SET progress = %(progress)s, progress_total = %(progress_total)s,
    lease_expires_at = MIN(MAX(lease_expires_at, django_jobs_add(%(now)s, %(lease)s)), %(ends_at)s)
WHERE id = %(job_id)s AND state = 'running' AND attempt_id = %(attempt_id)s AND (progress IS NULL OR progress < %(progress)s)
RETURNING id, lease_expires_at, %(now)s AS renewed_at
-- then
UPDATE django_jobs_attempt SET progress = %(progress)s WHERE id = %(attempt_id)s
