-- invariant: C4
-- meaning: no job succeeded on the receipt of another one while that effect was being, or had been, taken back
-- about: job
SELECT d.job_id AS id
FROM django_jobs_effectadoption d
JOIN django_jobs_job j ON j.id = d.job_id
JOIN django_jobs_compensation c ON c.effect_id = d.effect_id
WHERE j.state = 'succeeded' AND j.finished_at > c.created_at AND c.outcome <> 'void'
