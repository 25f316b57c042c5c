-- purpose: of the next keys, say which have expired and belong to a job whose content or whose rows are gone
-- guard: none; locks nothing
-- index: primary key
WITH looked AS MATERIALIZED (
    SELECT k.job_id, k.ttl_seconds, k.expires_at FROM django_jobs_idempotencykey k
    WHERE k.job_id > %(after)s::uuid AND k.job_id <= %(upto)s::uuid
    ORDER BY k.job_id LIMIT %(limit)s::bigint
)
SELECT k.job_id AS id, CASE
    WHEN j.id IS NULL AND k.expires_at <= %(now)s::timestamptz THEN ''
    WHEN j.content_removed_at IS NOT NULL
        AND j.finished_at + make_interval(secs => k.ttl_seconds) <= %(now)s::timestamptz THEN ''
    ELSE 'young' END AS kept
FROM looked k LEFT JOIN django_jobs_job j ON j.id = k.job_id
ORDER BY k.job_id
