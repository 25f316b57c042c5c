-- invariant: S1
-- meaning: a finished step was written by an attempt of its job, under that attempt's number
-- about: step
SELECT s.id
FROM django_jobs_jobstep s
LEFT JOIN django_jobs_attempt a ON a.id = s.attempt_id
WHERE a.id IS NULL OR a.job_id <> s.job_id OR a.number <> s.fence
