-- purpose: record the success of an attempt
-- guard: running under this attempt; no effect that it owns or asked for is open, or rejected though required
-- index: primary key
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
done AS (
    UPDATE django_jobs_job j
    SET state = 'succeeded', revision = j.revision + 1, finished_at = clock.now,
        attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
        lost_count = 0, exit_lost_count = 0, silent_lost_count = 0, isolation = '', waiting_since = NULL
    FROM clock
    WHERE j.id = %(job_id)s::uuid AND j.state = 'running' AND j.attempt_id = %(attempt_id)s::uuid
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_sideeffect e
            WHERE e.job_id = j.id
                AND (e.state IN ('planned', 'in_flight', 'ambiguous') OR (e.state = 'rejected' AND e.required)))
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_effectstake k
            JOIN django_jobs_sideeffect e ON e.id = k.effect_id
            WHERE k.job_id = j.id AND e.job_id <> j.id
                AND (k.attempt_id = %(attempt_id)s::uuid OR (k.owned AND e.state <> 'succeeded'))
                AND NOT (e.state = 'rejected' AND NOT k.required)
                AND NOT (e.state = 'succeeded' AND EXISTS (
                    SELECT 1 FROM django_jobs_effectadoption d WHERE d.effect_id = e.id AND d.job_id = k.job_id)))
    RETURNING j.id, clock.now AS finished_at
),
closed AS (
    UPDATE django_jobs_attempt a
    SET outcome = 'succeeded', finished_at = done.finished_at,
        over_budget = done.finished_at > a.started_at + %(budget)s::interval
    FROM done WHERE a.id = %(attempt_id)s::uuid
),
stored AS (
    UPDATE django_jobs_jobpayload p SET result = %(result)s::text
    FROM done WHERE p.job_id = done.id AND %(result)s::text IS NOT NULL
)
SELECT * FROM done
