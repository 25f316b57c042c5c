-- purpose: take a job back from a holder that is proved gone
-- guard: running under this attempt, and the proof still holds; a row that is being completed right now is skipped
-- index: primary key
-- A job that is due at once keeps the place in its queue that it had.
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
target AS MATERIALIZED (
    SELECT j.id FROM django_jobs_job j, clock
    WHERE j.id = %(job_id)s::uuid AND j.state = 'running' AND j.attempt_id = %(attempt_id)s::uuid
        AND CASE %(cause)s::text
            WHEN 'silent' THEN NOT EXISTS (
                SELECT 1 FROM django_jobs_worker w
                WHERE w.id = j.lease_owner AND w.stopped_at IS NULL
                    AND w.heartbeat_at > clock.now - %(silent_after)s::interval)
            WHEN 'expired' THEN j.lease_expires_at < clock.now - %(expired_patience)s::interval
            ELSE true END
    FOR NO KEY UPDATE OF j SKIP LOCKED
),
rescued AS (
    UPDATE django_jobs_job j
    SET state = CASE WHEN %(dead_reason)s::text <> '' THEN 'dead_lettered'
            WHEN %(delay)s::interval <= interval '1 second' THEN 'queued' ELSE 'failed' END,
        lane = CASE WHEN %(dead_reason)s::text = '' AND %(delay)s::interval <= interval '1 second' THEN j.resource ELSE '' END,
        revision = j.revision + 1,
        dead_at = CASE WHEN %(dead_reason)s::text <> '' THEN clock.now END, dead_reason = %(dead_reason)s::text,
        available_at = CASE WHEN %(dead_reason)s::text <> '' THEN j.available_at WHEN %(delay)s::interval = interval '0' THEN LEAST(j.available_at, clock.now) ELSE clock.now + %(delay)s::interval END,
        attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
        unknown_count = %(unknown_count)s::int, transient_count = %(transient_count)s::int, free_count = %(free_count)s::int,
        lost_count = %(lost_count)s::int, exit_lost_count = %(exit_lost_count)s::int, silent_lost_count = %(silent_lost_count)s::int,
        unchanged_count = %(unchanged_count)s::int, isolation = %(isolation)s::text
    FROM target, clock
    WHERE j.id = target.id
    RETURNING j.id, j.state, j.available_at, clock.now AS finished_at, j.queue_name
),
closed AS (
    UPDATE django_jobs_attempt a
    SET outcome = 'lost', finished_at = rescued.finished_at, loss_cause = %(cause)s::text, exit_status = %(exit_status)s::int,
        message = %(message)s::text
    FROM rescued WHERE a.id = %(attempt_id)s::uuid AND a.outcome IS NULL
),
woken AS MATERIALIZED (
    SELECT pg_notify('django_jobs_wake', c.queue_name)
    FROM rescued JOIN django_jobs_queuecontrol c ON c.queue_name = rescued.queue_name
    WHERE %(notify)s::boolean AND c.idle_until > rescued.finished_at AND rescued.state = 'queued'
)
SELECT rescued.*, EXISTS (SELECT 1 FROM woken) AS woken FROM rescued
