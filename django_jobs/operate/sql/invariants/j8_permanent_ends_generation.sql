-- invariant: J8
-- meaning: a permanent failure is the last attempt of its generation and leaves a dead letter
-- about: job
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_attempt a ON a.job_id = j.id AND a.generation = j.generation
WHERE a.outcome = 'failed' AND a.error_class = 'permanent' AND (j.state <> 'dead_lettered' OR a.number <> j.fence)
