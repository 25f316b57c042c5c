-- purpose: of the next jobs, say which may be deleted with all of their rows and what keeps the others
-- guard: none; locks nothing
-- index: primary key
WITH looked AS MATERIALIZED (
    SELECT j.id AS job_id, j.finished_at, j.batch_id FROM django_jobs_job j
    WHERE j.id > %(after)s::uuid AND j.id <= %(upto)s::uuid
    ORDER BY j.id LIMIT %(limit)s::bigint
),
own AS MATERIALIZED (
    SELECT e.id, e.job_id, e.state, e.needs_review, e.key_lifetime_seconds, e.resolved_at
    FROM looked l JOIN django_jobs_sideeffect e ON e.job_id = l.job_id
),
sent AS MATERIALIZED (
    SELECT own.job_id AS owner_id, s.job_id AS sender_id, s.settled_at, own.key_lifetime_seconds AS lifetime
    FROM own JOIN django_jobs_send s ON s.effect_id = own.id
),
unresolved AS MATERIALIZED (
    SELECT job_id FROM own WHERE state NOT IN ('rejected', 'succeeded', 'abandoned') OR needs_review
),
remembered AS MATERIALIZED (
    SELECT owner_id FROM sent WHERE settled_at + make_interval(secs => 300 + COALESCE(lifetime, 0)) > %(now)s::timestamptz
),
audited AS MATERIALIZED (
    SELECT job_id FROM own WHERE resolved_at >= %(rows_before)s::timestamptz
    UNION ALL
    SELECT owner_id FROM sent WHERE settled_at >= %(rows_before)s::timestamptz
    UNION ALL
    SELECT own.job_id FROM own JOIN django_jobs_reconciliation r ON r.effect_id = own.id
    WHERE r.created_at >= %(rows_before)s::timestamptz
    UNION ALL
    SELECT l.job_id FROM looked l
    JOIN django_jobs_compensation c ON c.original_job_id = l.job_id
    WHERE c.closed_at >= %(rows_before)s::timestamptz
),
needed AS MATERIALIZED (
    SELECT own.job_id FROM own JOIN django_jobs_effectadoption d ON d.effect_id = own.id AND d.job_id <> own.job_id
    UNION ALL
    SELECT sent.owner_id FROM sent JOIN django_jobs_job other ON other.id = sent.sender_id
    WHERE sent.sender_id <> sent.owner_id
    UNION ALL
    SELECT own.job_id FROM own
    JOIN django_jobs_effectstake k ON k.effect_id = own.id
    JOIN django_jobs_job other ON other.id = k.job_id
    WHERE k.job_id <> own.job_id AND other.finished_at IS NULL
    UNION ALL
    SELECT l.job_id FROM looked l
    JOIN django_jobs_compensation c ON c.original_job_id = l.job_id AND c.outcome = 'open'
    UNION ALL
    SELECT l.job_id FROM looked l JOIN django_jobs_compensation c ON c.job_id = l.job_id
)
SELECT l.job_id AS id, CASE
    WHEN l.finished_at IS NULL OR l.finished_at >= %(rows_before)s::timestamptz THEN 'young'
    WHEN l.job_id IN (SELECT job_id FROM unresolved) THEN 'unresolved'
    WHEN l.job_id IN (SELECT owner_id FROM remembered) THEN 'provider_key'
    WHEN l.job_id IN (SELECT job_id FROM audited) THEN 'audit'
    WHEN l.job_id IN (SELECT job_id FROM needed) THEN 'needed'
    WHEN EXISTS (SELECT 1 FROM django_jobs_batch b WHERE b.id = l.batch_id AND b.closed_at IS NULL) THEN 'batch'
    ELSE '' END AS kept
FROM looked l
ORDER BY l.job_id
