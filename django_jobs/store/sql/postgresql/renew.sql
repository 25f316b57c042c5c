-- purpose: extend the lease because the progress has grown
-- guard: running under this attempt, and the new value is greater than the stored one
-- index: primary key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
renewed AS (
    UPDATE django_jobs_job j
    SET progress = %(progress)s::bigint, progress_total = %(progress_total)s::bigint,
        lease_expires_at = LEAST(
            GREATEST(j.lease_expires_at, clock.now + %(lease)s::interval), %(ends_at)s::timestamptz)
    FROM clock
    WHERE j.id = %(job_id)s::uuid AND j.state = 'running' AND j.attempt_id = %(attempt_id)s::uuid
        AND (j.progress IS NULL OR j.progress < %(progress)s::bigint)
    RETURNING j.id, j.lease_expires_at, clock.now AS renewed_at
),
told AS (
    UPDATE django_jobs_attempt a SET progress = %(progress)s::bigint FROM renewed WHERE a.id = %(attempt_id)s::uuid
)
SELECT * FROM renewed
