-- purpose: take deliveries back from holders that are gone, and close their attempts as lost: due again, or dead
-- guard: state 'claimed' under the attempt that is named; rows that others hold are skipped
-- index: primary keys
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(attempt_ids)s::uuid[], %(states)s::text[], %(lost)s::int[], %(delays)s::float8[],
        %(reasons)s::text[], %(details)s::text[]
    ) AS g(id, attempt_id, state, lost_count, delay, reason, detail)
),
held AS MATERIALIZED (
    SELECT d.id FROM django_jobs_delivery d JOIN given g ON g.id = d.id
    WHERE d.state = 'claimed' AND d.attempt_id = g.attempt_id
    FOR NO KEY UPDATE OF d SKIP LOCKED
),
closed AS (
    UPDATE django_jobs_deliveryattempt a
    SET finished_at = clock.now, outcome = 'lost', detail = g.detail
    FROM given g, held h, clock WHERE h.id = g.id AND a.id = g.attempt_id AND a.outcome IS NULL
)
UPDATE django_jobs_delivery d
SET state = g.state, revision = d.revision + 1, attempt_id = NULL, lease_owner = NULL, lease_child = NULL,
    lease_expires_at = NULL, lost_count = g.lost_count,
    last_error = CASE WHEN g.reason = '' THEN d.last_error ELSE g.detail END,
    available_at = CASE WHEN g.state = 'pending' THEN clock.now + make_interval(secs => g.delay) END,
    dead_at = CASE WHEN g.state = 'dead_lettered' THEN clock.now END, dead_reason = g.reason
FROM given g, held h, clock WHERE h.id = g.id AND d.id = g.id
RETURNING d.id
