-- purpose: move jobs that have become due to the ready index, high priorities first; set aside those nobody may or can run
-- guard: state 'scheduled' or 'failed', due, in the lane that is asked for; rows that others hold are skipped
-- index: django_jobs_job_due
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT found.id
    FROM clock, unnest(%(queues)s::text[], %(lanes)s::text[]) AS q(queue_name, lane)
    CROSS JOIN LATERAL (
        SELECT one.id FROM unnest(ARRAY[1, 0, -1]) AS b(band)
        CROSS JOIN LATERAL (
            SELECT j.id FROM django_jobs_job j
            WHERE j.state IN ('scheduled', 'failed') AND j.queue_name = q.queue_name AND j.lane = q.lane
                AND CASE WHEN j.priority > 0 THEN 1 WHEN j.priority < 0 THEN -1 ELSE 0 END = b.band
                AND j.available_at <= clock.now
            ORDER BY j.available_at
            LIMIT %(limit)s::bigint
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS one
        LIMIT %(limit)s::bigint
    ) AS found
),
judged AS MATERIALIZED (
    SELECT j.id, j.job_type || ' ' || j.payload_version AS kind,
        %(runnable)s::text[] IS NULL OR j.job_type || ' ' || j.payload_version = ANY(%(runnable)s::text[]) AS runs
    FROM due JOIN django_jobs_job j ON j.id = due.id
)
UPDATE django_jobs_job j
SET state = CASE WHEN judged.runs THEN 'queued' ELSE j.state END,
    lane = CASE WHEN judged.runs THEN CASE WHEN j.serial_key <> '' THEN '~' ELSE j.resource END ELSE '!' || judged.kind END, revision = j.revision + 1
FROM judged WHERE j.id = judged.id
RETURNING j.id, j.state, judged.kind
