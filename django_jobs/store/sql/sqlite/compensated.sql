-- purpose: settle a dead letter of which everything that was applied has been taken back
-- guard: dead-lettered, without a resolution; something was taken back, nothing applied is left, nothing is unclear
-- index: primary key; django_jobs_compensation_of
UPDATE django_jobs_job
SET resolution = 'compensated', revision = revision + 1, finished_at = %(now)s
WHERE id = %(job_id)s AND state = 'dead_lettered' AND resolution IS NULL
    AND EXISTS (
        SELECT 1 FROM django_jobs_compensation c
        WHERE c.original_job_id = django_jobs_job.id AND c.outcome = 'succeeded')
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id AND (
            e.state IN ('in_flight', 'ambiguous') OR e.needs_review
            OR (e.state = 'succeeded' AND NOT EXISTS (
                SELECT 1 FROM django_jobs_compensation c
                WHERE c.original_job_id = django_jobs_job.id AND c.effect_id = e.id AND c.outcome = 'succeeded'))))
RETURNING id
