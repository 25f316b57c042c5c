-- invariant: J4
-- meaning: a job succeeded exactly if one attempt succeeded, and that one is its last
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN (
    SELECT job_id, COUNT(*) AS many, MAX(number) AS number
    FROM django_jobs_attempt WHERE outcome = 'succeeded' GROUP BY job_id
) s ON s.job_id = j.id
WHERE (j.state = 'succeeded' AND COALESCE(s.many, 0) <> 1)
    OR (j.state <> 'succeeded' AND COALESCE(s.many, 0) <> 0)
    OR s.number <> j.fence
