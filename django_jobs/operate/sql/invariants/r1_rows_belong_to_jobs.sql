-- invariant: R1
-- meaning: no attempt, payload, step, duplicate, effect, adoption or stake belongs to a job that does not exist
-- about: row
SELECT c.id FROM django_jobs_attempt c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.job_id FROM django_jobs_jobpayload c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_jobstep c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_duplicateenqueue c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_sideeffect c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_effectadoption c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_effectstake c LEFT JOIN django_jobs_job j ON j.id = c.job_id WHERE j.id IS NULL
