-- invariant: K2
-- meaning: a key and its job agree on fingerprint, payload version, scope and key; without content only the key has them
-- about: job
SELECT k.job_id AS id
FROM django_jobs_idempotencykey k
JOIN django_jobs_job j ON j.id = k.job_id
LEFT JOIN django_jobs_jobpayload p ON p.job_id = j.id
WHERE (j.content_removed_at IS NULL AND k.payload_fingerprint <> j.payload_fingerprint)
    OR k.payload_version <> j.payload_version
    OR (p.job_id IS NOT NULL AND (p.key <> k.key OR p.key_scope <> k.scope))
