-- purpose: record how attempts ended that delivered nothing: due again later, dead, or given back
-- guard: state 'claimed' under the attempt that is named
-- index: primary keys
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(attempt_ids)s::uuid[], %(outcomes)s::text[], %(states)s::text[], %(failed)s::int[],
        %(delays)s::float8[], %(statuses)s::int[], %(details)s::text[], %(reasons)s::text[], %(lost)s::int[]
    ) AS g(id, attempt_id, outcome, state, failed_count, delay, status, detail, reason, lost_count)
),
settled AS (
    UPDATE django_jobs_delivery d
    SET state = g.state, revision = d.revision + 1, attempt_id = NULL, lease_owner = NULL, lease_child = NULL,
        lease_expires_at = NULL, failed_count = g.failed_count, lost_count = g.lost_count,
        last_error = CASE WHEN g.detail = '' THEN d.last_error ELSE g.detail END,
        available_at = CASE WHEN g.state = 'pending' THEN clock.now + make_interval(secs => g.delay) END,
        dead_at = CASE WHEN g.state = 'dead_lettered' THEN clock.now END, dead_reason = g.reason
    FROM given g, clock
    WHERE d.id = g.id AND d.state = 'claimed' AND d.attempt_id = g.attempt_id
    RETURNING d.id
),
closed AS (
    UPDATE django_jobs_deliveryattempt a
    SET finished_at = clock.now, outcome = g.outcome, status = g.status, detail = g.detail
    FROM given g, clock WHERE a.id = g.attempt_id AND a.outcome IS NULL
)
SELECT id FROM settled
