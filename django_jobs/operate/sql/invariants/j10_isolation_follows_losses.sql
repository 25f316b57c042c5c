-- invariant: J10
-- meaning: a job must run alone exactly as its losses demand
-- about: job
SELECT j.id
FROM django_jobs_job j
WHERE j.isolation <> CASE
    WHEN j.silent_lost_count >= 2 THEN 'worker'
    WHEN j.exit_lost_count >= 1 THEN 'child'
    ELSE '' END
