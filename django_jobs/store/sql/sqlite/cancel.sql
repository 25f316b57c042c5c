-- purpose: cancel a waiting job; one with an effect that may have been applied is left to a human
-- guard: state 'scheduled', 'queued' or 'failed'; the caller holds the row since an earlier statement
-- index: primary key; django_jobs_compensation_job
UPDATE django_jobs_job
SET state = CASE WHEN %(applied)s OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND e.state NOT IN ('planned', 'rejected')) THEN 'dead_lettered' ELSE 'cancelled' END, revision = revision + 1,
    lane = '', waiting_since = NULL,
    finished_at = CASE WHEN NOT %(applied)s AND NOT EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND e.state NOT IN ('planned', 'rejected')) THEN %(now)s END,
    dead_at = CASE WHEN %(applied)s OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND e.state NOT IN ('planned', 'rejected')) THEN %(now)s END,
    dead_reason = CASE WHEN %(applied)s OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND e.state NOT IN ('planned', 'rejected')) THEN 'cancelled' ELSE '' END
WHERE id = %(job_id)s AND state IN ('scheduled', 'queued', 'failed')
RETURNING id, state
-- then
UPDATE django_jobs_compensation SET outcome = 'void', closed_at = %(now)s
WHERE job_id = %(job_id)s AND outcome = 'open'
    AND EXISTS (SELECT 1 FROM django_jobs_job WHERE id = %(job_id)s AND state = 'cancelled')
