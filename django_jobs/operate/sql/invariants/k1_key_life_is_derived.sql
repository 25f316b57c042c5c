-- invariant: K1
-- meaning: a key has an expiry of its own exactly if its job was pruned, and then it says how the job had ended
-- about: job
SELECT k.job_id AS id
FROM django_jobs_idempotencykey k
LEFT JOIN django_jobs_job j ON j.id = k.job_id
WHERE (j.id IS NOT NULL AND k.expires_at IS NOT NULL)
    OR (j.id IS NULL AND (
        k.expires_at IS NULL OR k.final_state IS NULL
        OR k.final_state NOT IN ('succeeded', 'cancelled', 'dead_lettered')
        OR (k.final_state = 'dead_lettered' AND k.final_resolution IS NULL)
        OR NOT EXISTS (
            SELECT 1 FROM django_jobs_prunedstretch t
            WHERE t.kind = 'jobs' AND t.last_job_id >= k.job_id AND t.first_job_id <= k.job_id)))
