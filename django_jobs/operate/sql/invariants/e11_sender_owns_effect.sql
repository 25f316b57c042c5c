-- invariant: E11
-- meaning: the job that sent last owns the effect
-- about: effect
SELECT e.id
FROM django_jobs_sideeffect e
JOIN django_jobs_send s ON s.effect_id = e.id
WHERE s.job_id <> e.job_id
    AND s.number = (SELECT MAX(newest.number) FROM django_jobs_send newest WHERE newest.effect_id = e.id)
