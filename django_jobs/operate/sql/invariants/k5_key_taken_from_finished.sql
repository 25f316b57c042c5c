-- invariant: K5
-- meaning: a job that took over an expired key took it from a finished job, which is still there or was pruned
-- about: job
SELECT p.job_id AS id
FROM django_jobs_jobpayload p
LEFT JOIN django_jobs_job old ON old.id = p.previous_job_id
WHERE p.previous_job_id IS NOT NULL AND (
    (old.state NOT IN ('succeeded', 'cancelled') AND old.resolution IS NULL) OR old.id = p.job_id
    OR (old.id IS NULL AND NOT EXISTS (
        SELECT 1 FROM django_jobs_prunedstretch t
        WHERE t.kind = 'jobs' AND t.last_job_id >= p.previous_job_id AND t.first_job_id <= p.previous_job_id)))
