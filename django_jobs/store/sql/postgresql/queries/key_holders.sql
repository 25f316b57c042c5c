-- purpose: read who holds idempotency keys of one scope, whether those jobs are finished, and the time
-- guard: none; locks nothing
-- index: django_jobs_key_once; primary key
SELECT k.key, k.job_id, k.payload_version, k.payload_fingerprint, k.ttl_seconds, k.expires_at, k.final_state,
    k.final_resolution, j.state, j.resolution, j.finished_at, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
FROM django_jobs_idempotencykey k
LEFT JOIN django_jobs_job j ON j.id = k.job_id
WHERE k.scope = %(scope)s::text AND k.key = ANY (%(keys)s::text[])
