-- purpose: give a job back that this worker will not finish
-- guard: running under this attempt, and no request of it is still inside its deadline; a completing row is skipped
-- index: primary key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
target AS MATERIALIZED (
    SELECT j.id FROM django_jobs_job j, clock
    WHERE j.id = %(job_id)s::uuid AND j.state = 'running' AND j.attempt_id = %(attempt_id)s::uuid
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_sideeffect e JOIN django_jobs_send s ON s.effect_id = e.id
            WHERE e.job_id = j.id AND s.attempt_id = %(attempt_id)s::uuid AND s.outcome IS NULL AND s.deadline_at > clock.now)
    FOR NO KEY UPDATE OF j SKIP LOCKED
),
released AS (
    UPDATE django_jobs_job j
    SET state = 'queued', lane = j.resource, revision = j.revision + 1, free_count = j.free_count + 1,
        attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL
    FROM target, clock
    WHERE j.id = target.id
    RETURNING j.id, clock.now AS finished_at, j.queue_name
),
closed AS (
    UPDATE django_jobs_attempt a
    SET outcome = 'released', finished_at = released.finished_at, message = %(message)s::text
    FROM released WHERE a.id = %(attempt_id)s::uuid
),
woken AS MATERIALIZED (
    SELECT pg_notify('django_jobs_wake', c.queue_name)
    FROM released JOIN django_jobs_queuecontrol c ON c.queue_name = released.queue_name
    WHERE %(notify)s::boolean AND c.idle_until > released.finished_at
)
SELECT released.*, EXISTS (SELECT 1 FROM woken) AS woken FROM released
