-- invariant: K5
-- meaning: a job that took over an expired key took it from a finished job
-- about: job
SELECT p.job_id AS id
FROM django_jobs_jobpayload p
JOIN django_jobs_job old ON old.id = p.previous_job_id
WHERE (old.state NOT IN ('succeeded', 'cancelled') AND old.resolution IS NULL) OR old.id = p.job_id
