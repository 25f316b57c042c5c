-- invariant: A2
-- meaning: no two attempts of a job have one number
-- about: job
SELECT job_id AS id FROM django_jobs_attempt GROUP BY job_id, number HAVING COUNT(*) > 1
