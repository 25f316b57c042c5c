-- purpose: let a job that waits for its time start now
-- guard: scheduled or failed at the revision that was acknowledged, still useful, not set aside
-- index: primary key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
moved AS (
    UPDATE django_jobs_job j
    SET state = 'queued', lane = CASE WHEN j.serial_key <> '' THEN '~' ELSE j.resource END, revision = j.revision + 1, available_at = LEAST(j.available_at, clock.now),
        generation_started_at = LEAST(j.generation_started_at, clock.now)
    FROM clock
    WHERE j.id = %(job_id)s::uuid AND j.state IN ('scheduled', 'failed') AND j.revision = %(revision)s::bigint
        AND substr(j.lane, 1, 1) <> '!' AND (j.useful_until IS NULL OR j.useful_until > clock.now)
    RETURNING j.id, j.state, j.queue_name, clock.now
),
woken AS MATERIALIZED (
    SELECT pg_notify('django_jobs_wake', c.queue_name)
    FROM moved JOIN django_jobs_queuecontrol c ON c.queue_name = moved.queue_name
    WHERE %(notify)s::boolean AND c.idle_until > moved.now
)
SELECT moved.*, EXISTS (SELECT 1 FROM woken) AS woken FROM moved
