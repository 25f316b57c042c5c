-- purpose: end an attempt without an error and run the job again later
-- guard: running under this attempt
-- index: primary key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
snoozed AS (
    UPDATE django_jobs_job j
    SET state = 'scheduled', lane = '', revision = j.revision + 1, available_at = clock.now + %(delay)s::interval,
        waiting_since = CASE WHEN %(for_evidence)s::boolean THEN COALESCE(j.waiting_since, clock.now) END,
        attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
        unknown_count = %(unknown_count)s::int, transient_count = %(transient_count)s::int, free_count = %(free_count)s::int,
        lost_count = %(lost_count)s::int, exit_lost_count = %(exit_lost_count)s::int, silent_lost_count = %(silent_lost_count)s::int,
        unchanged_count = %(unchanged_count)s::int, isolation = %(isolation)s::text
    FROM clock
    WHERE j.id = %(job_id)s::uuid AND j.state = 'running' AND j.attempt_id = %(attempt_id)s::uuid
    RETURNING j.id, j.available_at, clock.now AS finished_at
),
closed AS (
    UPDATE django_jobs_attempt a
    SET outcome = 'snoozed', finished_at = snoozed.finished_at, message = %(message)s::text
    FROM snoozed WHERE a.id = %(attempt_id)s::uuid
)
SELECT * FROM snoozed
