-- invariant: E13
-- meaning: an adopted effect succeeded under another job, and an attempt of the adopter took it
-- about: effect
SELECT d.effect_id AS id
FROM django_jobs_effectadoption d
JOIN django_jobs_sideeffect e ON e.id = d.effect_id
LEFT JOIN django_jobs_attempt a ON a.id = d.attempt_id
WHERE e.state <> 'succeeded' OR e.job_id = d.job_id OR a.id IS NULL OR a.job_id <> d.job_id
