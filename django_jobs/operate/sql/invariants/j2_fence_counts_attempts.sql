-- invariant: J2
-- meaning: attempts are numbered from 1 without a gap over all generations, and the fence is the last number
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN (
    SELECT job_id, MIN(number) AS lowest, MAX(number) AS highest, COUNT(*) AS many
    FROM django_jobs_attempt GROUP BY job_id
) a ON a.job_id = j.id
WHERE COALESCE(a.highest, 0) <> j.fence OR COALESCE(a.many, 0) <> j.fence OR COALESCE(a.lowest, 1) <> 1
