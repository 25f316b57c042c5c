-- invariant: C3
-- meaning: a dead letter is resolved as compensated only when everything that it had applied by then has been taken back
-- about: job
SELECT j.id
FROM django_jobs_job j
WHERE j.resolution = 'compensated' AND (
    NOT EXISTS (SELECT 1 FROM django_jobs_compensation c WHERE c.original_job_id = j.id AND c.outcome = 'succeeded')
    OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = j.id AND e.state = 'succeeded' AND e.resolved_at <= j.finished_at
            AND NOT EXISTS (
                SELECT 1 FROM django_jobs_compensation c WHERE c.effect_id = e.id AND c.outcome = 'succeeded')))
