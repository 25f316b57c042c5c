-- purpose: settle a dead letter for good: nothing of it runs again; if it was to take an effect back, that is void
-- guard: an unresolved dead letter at the revision that was acknowledged, nothing of it taken back
-- index: primary key; django_jobs_compensation_of, django_jobs_compensation_job
UPDATE django_jobs_job
SET resolution = 'discarded', finished_at = %(now)s, revision = revision + 1
WHERE id = %(job_id)s AND state = 'dead_lettered' AND resolution IS NULL AND revision = %(revision)s
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_compensation c
        WHERE c.original_job_id = django_jobs_job.id AND c.outcome IN ('open', 'succeeded'))
RETURNING id, finished_at
-- then
UPDATE django_jobs_compensation SET outcome = 'void', closed_at = %(now)s
WHERE job_id = %(row_id)s AND outcome = 'open'
