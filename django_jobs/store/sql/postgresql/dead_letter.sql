-- purpose: end a failed attempt and leave the job to a human
-- guard: running under this attempt
-- index: primary key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
dead AS (
    UPDATE django_jobs_job j
    SET state = 'dead_lettered', revision = j.revision + 1, dead_at = clock.now, dead_reason = %(dead_reason)s,
        waiting_since = NULL,
        attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
        unknown_count = %(unknown_count)s, transient_count = %(transient_count)s, free_count = %(free_count)s,
        lost_count = %(lost_count)s, exit_lost_count = %(exit_lost_count)s, silent_lost_count = %(silent_lost_count)s,
        unchanged_count = %(unchanged_count)s, isolation = %(isolation)s,
        error_class = %(error_class)s, error_type = %(error_type)s, error_fingerprint = %(error_fingerprint)s
    FROM clock
    WHERE j.id = %(job_id)s AND j.state = 'running' AND j.attempt_id = %(attempt_id)s
    RETURNING j.id, clock.now AS finished_at
),
closed AS (
    UPDATE django_jobs_attempt a
    SET outcome = 'failed', finished_at = dead.finished_at, error_class = %(error_class)s, error_type = %(error_type)s, error_fingerprint = %(error_fingerprint)s,
        message = %(message)s, traceback = %(traceback)s,
        over_budget = dead.finished_at > a.started_at + %(budget)s::interval
    FROM dead WHERE a.id = %(attempt_id)s
),
told AS (
    UPDATE django_jobs_jobpayload p SET error_text = %(message)s FROM dead WHERE p.job_id = dead.id
)
SELECT * FROM dead
