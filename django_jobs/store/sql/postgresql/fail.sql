-- purpose: record a failed attempt and schedule the next one; one that is due within a second is queued at once
-- guard: running under this attempt
-- index: primary key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
failed AS (
    UPDATE django_jobs_job j
    SET state = CASE WHEN %(delay)s::interval <= interval '1 second' THEN 'queued' ELSE 'failed' END,
        lane = CASE WHEN %(delay)s::interval <= interval '1 second' THEN j.resource ELSE '' END,
        revision = j.revision + 1, available_at = clock.now + %(delay)s::interval, waiting_since = NULL,
        attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
        unknown_count = %(unknown_count)s::int, transient_count = %(transient_count)s::int, free_count = %(free_count)s::int,
        lost_count = %(lost_count)s::int, exit_lost_count = %(exit_lost_count)s::int, silent_lost_count = %(silent_lost_count)s::int,
        unchanged_count = %(unchanged_count)s::int, isolation = %(isolation)s::text,
        error_class = %(error_class)s::text, error_type = %(error_type)s::text, error_fingerprint = %(error_fingerprint)s::text
    FROM clock
    WHERE j.id = %(job_id)s::uuid AND j.state = 'running' AND j.attempt_id = %(attempt_id)s::uuid
    RETURNING j.id, j.state, j.available_at, clock.now AS finished_at
),
closed AS (
    UPDATE django_jobs_attempt a
    SET outcome = 'failed', finished_at = failed.finished_at, error_class = %(error_class)s::text, error_type = %(error_type)s::text, error_fingerprint = %(error_fingerprint)s::text,
        message = %(message)s::text, traceback = %(traceback)s::text,
        over_budget = failed.finished_at > a.started_at + %(budget)s::interval
    FROM failed WHERE a.id = %(attempt_id)s::uuid
),
told AS (
    UPDATE django_jobs_jobpayload p SET error_text = %(message)s::text FROM failed WHERE p.job_id = failed.id
)
SELECT * FROM failed
