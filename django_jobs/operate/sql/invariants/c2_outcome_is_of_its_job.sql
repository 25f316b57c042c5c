-- invariant: C2
-- meaning: a compensation is open while its job is not finished, succeeded when that succeeded, void when it was given up; every compensation job has one
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN django_jobs_compensation c ON c.job_id = j.id
WHERE j.job_type = 'django_jobs.compensate' AND (
    -- the row goes with the original, which is pruned before what took it back
    (c.id IS NULL AND j.state = 'succeeded' AND NOT EXISTS (
        SELECT 1 FROM django_jobs_prunedstretch t WHERE t.kind = 'jobs' AND t.first_job_id < j.id))
    OR c.outcome <> CASE
        WHEN j.state = 'succeeded' THEN 'succeeded' WHEN j.finished_at IS NOT NULL THEN 'void' ELSE 'open' END)
