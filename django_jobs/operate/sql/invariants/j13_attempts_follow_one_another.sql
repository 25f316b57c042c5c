-- invariant: J13
-- meaning: no attempt begins before the one before it ended: a job has one owner at a time
-- about: job
SELECT b.job_id AS id
FROM django_jobs_attempt a
JOIN django_jobs_attempt b ON b.job_id = a.job_id AND b.number = a.number + 1
WHERE b.started_at < a.finished_at OR a.finished_at < a.started_at
