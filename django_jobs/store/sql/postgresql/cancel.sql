-- purpose: cancel a waiting job; one with an effect that may have been applied is left to a human
-- guard: state 'scheduled', 'queued' or 'failed'; the caller holds the row since an earlier statement
-- index: primary key; django_jobs_compensation_job
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
target AS MATERIALIZED (
    SELECT j.id, %(applied)s::boolean OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e WHERE e.job_id = j.id AND e.state NOT IN ('planned', 'rejected')) AS touched
    FROM django_jobs_job j WHERE j.id = %(job_id)s::uuid
),
cancelled AS (
    UPDATE django_jobs_job j
    SET state = CASE WHEN target.touched THEN 'dead_lettered' ELSE 'cancelled' END, revision = j.revision + 1,
        lane = '', waiting_since = NULL,
        finished_at = CASE WHEN NOT target.touched THEN clock.now END,
        dead_at = CASE WHEN target.touched THEN clock.now END,
        dead_reason = CASE WHEN target.touched THEN 'cancelled' ELSE '' END
    FROM target, clock
    WHERE j.id = target.id AND j.state IN ('scheduled', 'queued', 'failed')
    RETURNING j.id, j.state, clock.now AS ended_at
),
void AS (
    UPDATE django_jobs_compensation c SET outcome = 'void', closed_at = cancelled.ended_at
    FROM cancelled WHERE c.job_id = cancelled.id AND c.outcome = 'open' AND cancelled.state = 'cancelled'
)
SELECT id, state FROM cancelled
