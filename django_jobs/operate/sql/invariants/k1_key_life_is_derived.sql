-- invariant: K1
-- meaning: a key has an expiry of its own exactly if its job is gone
-- about: job
SELECT k.job_id AS id
FROM django_jobs_idempotencykey k
LEFT JOIN django_jobs_job j ON j.id = k.job_id
WHERE (j.id IS NULL AND k.expires_at IS NULL) OR (j.id IS NOT NULL AND k.expires_at IS NOT NULL)
