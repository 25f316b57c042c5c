-- purpose: end an attempt as cancelled, and its job; one with an effect that may have been applied is left to a human
-- guard: running under this attempt; the caller holds the row since an earlier statement
-- index: primary key; django_jobs_compensation_job
UPDATE django_jobs_job
SET state = CASE WHEN %(applied)s OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND e.state NOT IN ('planned', 'rejected')) THEN 'dead_lettered' ELSE 'cancelled' END, revision = revision + 1,
    waiting_since = NULL, attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
    finished_at = CASE WHEN NOT %(applied)s AND NOT EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND e.state NOT IN ('planned', 'rejected')) THEN %(now)s END,
    dead_at = CASE WHEN %(applied)s OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND e.state NOT IN ('planned', 'rejected')) THEN %(now)s END,
    dead_reason = CASE WHEN %(applied)s OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND e.state NOT IN ('planned', 'rejected')) THEN 'cancelled' ELSE '' END
WHERE id = %(job_id)s AND state = 'running' AND attempt_id = %(attempt_id)s
RETURNING id, state
-- then
UPDATE django_jobs_attempt
SET outcome = 'cancelled', finished_at = %(now)s, message = %(message)s,
    over_budget = %(now)s > django_jobs_add(started_at, %(budget)s)
WHERE id = %(attempt_id)s
-- then
UPDATE django_jobs_compensation SET outcome = 'void', closed_at = %(now)s
WHERE job_id = %(job_id)s AND outcome = 'open'
    AND EXISTS (SELECT 1 FROM django_jobs_job WHERE id = %(job_id)s AND state = 'cancelled')
