-- purpose: end a failed attempt and leave the job to a human
-- guard: running under this attempt
-- index: primary key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
dead AS (
    UPDATE django_jobs_job j
    SET state = 'dead_lettered', revision = j.revision + 1, dead_at = clock.now, dead_reason = %(dead_reason)s::text,
        waiting_since = NULL,
        attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
        unknown_count = %(unknown_count)s::int, transient_count = %(transient_count)s::int, free_count = %(free_count)s::int,
        lost_count = %(lost_count)s::int, exit_lost_count = %(exit_lost_count)s::int, silent_lost_count = %(silent_lost_count)s::int,
        unchanged_count = %(unchanged_count)s::int, isolation = %(isolation)s::text,
        error_class = %(error_class)s::text, error_type = %(error_type)s::text, error_fingerprint = %(error_fingerprint)s::text
    FROM clock
    WHERE j.id = %(job_id)s::uuid AND j.state = 'running' AND j.attempt_id = %(attempt_id)s::uuid
    RETURNING j.id, clock.now AS finished_at
),
closed AS (
    UPDATE django_jobs_attempt a
    SET outcome = 'failed', finished_at = dead.finished_at, error_class = %(error_class)s::text, error_type = %(error_type)s::text, error_fingerprint = %(error_fingerprint)s::text,
        message = %(message)s::text, traceback = %(traceback)s::text,
        over_budget = dead.finished_at > a.started_at + %(budget)s::interval
    FROM dead WHERE a.id = %(attempt_id)s::uuid
),
told AS (
    UPDATE django_jobs_jobpayload p SET error_text = %(message)s::text FROM dead WHERE p.job_id = dead.id
)
SELECT * FROM dead
