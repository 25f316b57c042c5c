-- invariant: J11
-- meaning: generations never fall from one attempt to the next, and none is beyond the job's
-- about: job
SELECT a.job_id AS id
FROM django_jobs_attempt a
JOIN django_jobs_attempt b ON b.job_id = a.job_id AND b.number = a.number + 1
WHERE b.generation < a.generation
UNION
SELECT j.id
FROM django_jobs_job j
LEFT JOIN django_jobs_attempt a ON a.job_id = j.id AND a.number = j.fence
WHERE a.generation > j.generation OR j.generation < 1
