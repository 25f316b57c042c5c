-- invariant: R1
-- meaning: no attempt, payload, step, duplicate, effect, adoption or stake belongs to a job that does not exist; a live key of a pruned one may be answered
-- about: row
SELECT c.id FROM django_jobs_attempt c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.job_id FROM django_jobs_jobpayload c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_jobstep c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id
FROM django_jobs_duplicateenqueue c
LEFT JOIN django_jobs_job j ON j.id = c.job_id
WHERE j.id IS NULL AND NOT EXISTS (
    SELECT 1 FROM django_jobs_prunedstretch t
    WHERE t.kind = 'jobs' AND t.last_job_id >= c.job_id AND t.first_job_id <= c.job_id)
UNION ALL
SELECT c.id FROM django_jobs_sideeffect c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_effectadoption c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_effectstake c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
