-- purpose: count unfinished jobs by queue, type, band and state, and find the one of each that became due first
-- guard: none; each look takes at most the limit, per queue where an index leads to one; locks nothing
-- index: django_jobs_job_ready, django_jobs_job_due, django_jobs_job_watched, django_jobs_job_held
WITH RECURSIVE clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
ready AS (
    (SELECT j.queue_name FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation = '' ORDER BY j.queue_name LIMIT 1)
    UNION ALL
    SELECT following.queue_name FROM ready q CROSS JOIN LATERAL (
        SELECT j.queue_name FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name > q.queue_name ORDER BY j.queue_name LIMIT 1
    ) AS following
),
later AS (
    (SELECT j.queue_name FROM django_jobs_job j
    WHERE j.state IN ('scheduled', 'failed') ORDER BY j.queue_name LIMIT 1)
    UNION ALL
    SELECT following.queue_name FROM later q CROSS JOIN LATERAL (
        SELECT j.queue_name FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.queue_name > q.queue_name ORDER BY j.queue_name LIMIT 1
    ) AS following
),
seen AS (
    SELECT j.queue_name, j.job_type, j.priority, CASE j.lane WHEN '~~' THEN 'behind' ELSE 'queued' END AS stands,
        j.available_at, NULL::timestamptz AS lease_ends, NULL::text AS error
    FROM ready q CROSS JOIN LATERAL (
        SELECT j.queue_name, j.job_type, j.priority, j.lane, j.available_at FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name LIMIT %(limit)s::bigint
    ) AS j
    UNION ALL
    (SELECT j.queue_name, j.job_type, j.priority, 'queued', j.available_at, NULL, NULL FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation <> '' AND j.isolation > '' LIMIT %(limit)s::bigint)
    UNION ALL
    SELECT j.queue_name, j.job_type, j.priority,
        CASE WHEN left(j.lane, 1) = '!' THEN 'aside' WHEN j.state = 'failed' THEN 'retry' ELSE 'scheduled' END,
        j.available_at, NULL, NULL
    FROM later q CROSS JOIN LATERAL (
        SELECT j.queue_name, j.job_type, j.priority, j.lane, j.state, j.available_at FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name LIMIT %(limit)s::bigint
    ) AS j
    UNION ALL
    (SELECT j.queue_name, j.job_type, j.priority, 'running', NULL, j.lease_expires_at, NULL FROM django_jobs_job j
    WHERE j.state = 'running' LIMIT %(limit)s::bigint)
    UNION ALL
    SELECT j.queue_name, j.job_type, j.priority, 'dead_lettered', NULL, NULL, j.error_fingerprint FROM (
        SELECT j.queue_name, j.job_type, j.priority, j.resolution, j.error_fingerprint FROM django_jobs_job j
        WHERE j.state = 'dead_lettered' ORDER BY j.id DESC LIMIT %(limit)s::bigint
    ) AS j
    WHERE j.resolution IS NULL
)
SELECT s.queue_name, s.job_type, sign(s.priority)::int AS band, s.stands, count(*) AS many,
    min(s.available_at) AS available_at, count(*) FILTER (WHERE s.lease_ends < clock.now) AS expired,
    count(DISTINCT s.error) AS errors, clock.now
FROM seen s, clock
GROUP BY s.queue_name, s.job_type, sign(s.priority), s.stands, clock.now
