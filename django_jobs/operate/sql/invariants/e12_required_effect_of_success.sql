-- invariant: E12
-- meaning: a succeeded job owns no required effect that was rejected
-- about: job
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_sideeffect e ON e.job_id = j.id
WHERE j.state = 'succeeded' AND e.state = 'rejected' AND e.required
