-- purpose: of the next keys, say which have expired and belong to a job whose content or whose rows are gone
-- guard: none; locks nothing
-- index: primary key
WITH looked AS MATERIALIZED (
    SELECT k.job_id, k.ttl_seconds, k.expires_at FROM django_jobs_idempotencykey k
    WHERE k.job_id > %(after)s AND k.job_id <= %(upto)s
    ORDER BY k.job_id LIMIT %(limit)s
)
SELECT k.job_id AS id, CASE
    WHEN j.id IS NULL AND k.expires_at <= %(now)s THEN ''
    WHEN j.content_removed_at IS NOT NULL
        AND django_jobs_add(j.finished_at, k.ttl_seconds) <= %(now)s THEN ''
    ELSE 'young' END AS kept
FROM looked k LEFT JOIN django_jobs_job j ON j.id = k.job_id
ORDER BY k.job_id
