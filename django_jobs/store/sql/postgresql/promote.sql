-- purpose: move jobs that have become due to the ready index
-- guard: state 'scheduled' or 'failed', due; rows that others hold are skipped
-- index: django_jobs_job_due
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT found.id
    FROM clock, unnest(%(queues)s::text[]) AS q(queue_name)
    CROSS JOIN LATERAL (
        SELECT j.id FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name AND j.available_at <= clock.now
        ORDER BY j.available_at
        LIMIT %(limit)s::bigint
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
)
UPDATE django_jobs_job j SET state = 'queued', revision = j.revision + 1
FROM due WHERE j.id = due.id
RETURNING j.id
