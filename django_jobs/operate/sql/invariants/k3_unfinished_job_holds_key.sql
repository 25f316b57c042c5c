-- invariant: K3
-- meaning: an unfinished job that was enqueued with a key still holds it
-- about: job
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_jobpayload p ON p.job_id = j.id
WHERE p.key <> '' AND j.state NOT IN ('succeeded', 'cancelled') AND j.resolution IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_idempotencykey k WHERE k.job_id = j.id AND k.scope = p.key_scope AND k.key = p.key)
