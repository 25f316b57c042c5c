-- invariant: J8
-- meaning: a permanent failure is the last attempt of its generation and leaves a dead letter, which only a replay ends
-- about: job
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_attempt a ON a.job_id = j.id AND a.generation = j.generation
WHERE a.outcome = 'failed' AND a.error_class = 'permanent' AND (j.state <> 'dead_lettered' OR a.number <> j.fence)
UNION
SELECT a.job_id AS id
FROM django_jobs_attempt a
JOIN django_jobs_attempt b ON b.job_id = a.job_id AND b.generation = a.generation AND b.number > a.number
WHERE a.outcome = 'failed' AND a.error_class = 'permanent'
