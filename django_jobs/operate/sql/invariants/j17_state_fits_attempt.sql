-- invariant: J17
-- meaning: a job that waits for a retry failed or was lost before, and a job's end comes after that of every attempt
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN django_jobs_attempt a ON a.job_id = j.id AND a.number = j.fence AND a.generation = j.generation
WHERE j.state = 'failed' AND COALESCE(a.outcome, '') NOT IN ('failed', 'lost')
UNION
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_attempt a ON a.job_id = j.id
WHERE a.finished_at > COALESCE(j.dead_at, j.finished_at)
