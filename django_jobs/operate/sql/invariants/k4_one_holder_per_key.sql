-- invariant: K4
-- meaning: no key has two holders
-- about: job
SELECT k.job_id AS id
FROM django_jobs_idempotencykey k
JOIN (
    SELECT scope, key FROM django_jobs_idempotencykey GROUP BY scope, key HAVING COUNT(*) > 1
) twice ON twice.scope = k.scope AND twice.key = k.key
