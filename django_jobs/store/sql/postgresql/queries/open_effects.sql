-- purpose: count side effects whose outcome is not known, by name, with the time of the oldest
-- guard: none; an open effect belongs to an unfinished job, so it is found through those; bounded looks; locks nothing
-- index: django_jobs_job_ready, django_jobs_job_due, django_jobs_job_held, the index of effects by job
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
begun AS MATERIALIZED (
    SELECT j.id FROM ready q CROSS JOIN LATERAL (
        SELECT j.id, j.fence FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.queue_name = q.queue_name LIMIT %(limit)s::bigint
    ) AS j WHERE j.fence > 0
    UNION ALL
    (SELECT j.id FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation <> '' AND j.isolation > '' LIMIT %(limit)s::bigint)
    UNION ALL
    SELECT j.id FROM later q CROSS JOIN LATERAL (
        SELECT j.id, j.fence FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name LIMIT %(limit)s::bigint
    ) AS j WHERE j.fence > 0
    UNION ALL
    (SELECT j.id FROM django_jobs_job j WHERE j.state = 'running' LIMIT %(limit)s::bigint)
    UNION ALL
    SELECT j.id FROM (
        SELECT j.id, j.resolution FROM django_jobs_job j
        WHERE j.state = 'dead_lettered' ORDER BY j.id DESC LIMIT %(limit)s::bigint
    ) AS j WHERE j.resolution IS NULL
)
SELECT e.name, count(*) AS many, min(e.created_at) AS created_at, clock.now
FROM clock, begun b
CROSS JOIN LATERAL (
    SELECT e.name, e.created_at FROM django_jobs_sideeffect e
    WHERE e.job_id = b.id AND (e.state IN ('in_flight', 'ambiguous') OR (e.needs_review AND e.state <> 'abandoned'))
    OFFSET 0
) AS e
GROUP BY e.name, clock.now
