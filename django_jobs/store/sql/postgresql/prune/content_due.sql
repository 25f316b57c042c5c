-- purpose: of the next jobs that have a payload, say which may lose their content and what keeps the others
-- guard: none; locks nothing
-- index: primary key of the payloads, which are gone where the content is
WITH looked AS MATERIALIZED (
    SELECT p.job_id FROM django_jobs_jobpayload p
    WHERE p.job_id > %(after)s::uuid AND p.job_id <= %(upto)s::uuid
    ORDER BY p.job_id LIMIT %(limit)s::bigint
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
needed AS MATERIALIZED (
    SELECT own.job_id FROM own
    JOIN django_jobs_effectadoption d ON d.effect_id = own.id
    JOIN django_jobs_job other ON other.id = d.job_id
    WHERE other.finished_at IS NULL
    UNION ALL
    SELECT sent.owner_id FROM sent JOIN django_jobs_job other ON other.id = sent.sender_id
    WHERE sent.sender_id <> sent.owner_id AND other.finished_at IS NULL
    UNION ALL
    SELECT own.job_id FROM own
    JOIN django_jobs_effectstake k ON k.effect_id = own.id
    JOIN django_jobs_job other ON other.id = k.job_id
    WHERE k.job_id <> own.job_id AND other.finished_at IS NULL
    UNION ALL
    SELECT l.job_id FROM looked l
    JOIN django_jobs_compensation c ON c.original_job_id = l.job_id AND c.outcome = 'open'
)
SELECT l.job_id AS id, CASE
    WHEN j.finished_at IS NULL OR j.finished_at >= CASE j.state
        WHEN 'dead_lettered' THEN %(dead_before)s::timestamptz ELSE %(content_before)s::timestamptz END THEN 'young'
    WHEN l.job_id IN (SELECT job_id FROM unresolved) THEN 'unresolved'
    WHEN l.job_id IN (SELECT owner_id FROM remembered) THEN 'provider_key'
    WHEN l.job_id IN (SELECT job_id FROM needed) THEN 'needed'
    ELSE '' END AS kept
FROM looked l LEFT JOIN django_jobs_job j ON j.id = l.job_id
ORDER BY l.job_id
