-- purpose: end jobs that could not start while they were useful, and jobs of a kind that nobody has known for the grace
-- guard: waiting, and no longer useful; or set aside and due for the grace, while the judge lived and nobody knew the kind; rows that others hold are skipped
-- index: django_jobs_job_watched, django_jobs_job_due
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
late AS MATERIALIZED (
    SELECT found.id
    FROM clock, unnest(ARRAY['', 'child', 'worker']) AS i(isolation)
    CROSS JOIN LATERAL (
        SELECT j.id FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'queued', 'failed') AND j.isolation = i.isolation
            AND j.useful_until IS NOT NULL AND j.useful_until <= clock.now
        ORDER BY j.useful_until
        LIMIT %(limit)s::bigint
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
    LIMIT %(limit)s::bigint
),
judges AS MATERIALIZED (
    SELECT 1 FROM django_jobs_worker w, clock
    WHERE w.id = %(judge)s::uuid AND w.stopped_at IS NULL AND w.started_at <= clock.now - %(grace)s::interval
),
forgotten AS MATERIALIZED (
    SELECT found.id, CASE WHEN lost.type_is_known THEN 'version' ELSE 'unknown_type' END AS reason
    FROM judges, clock, unnest(%(queues)s::text[], %(lanes)s::text[]) AS q(queue_name, lane)
    CROSS JOIN LATERAL (
        SELECT COALESCE(bool_or(jsonb_exists(w.kinds::jsonb, substr(q.lane, 2))), false) AS kind_is_known,
            COALESCE(bool_or(jsonb_exists(w.job_types::jsonb, regexp_replace(substr(q.lane, 2), ' [0-9]+$', ''))), false)
                AS type_is_known
        FROM django_jobs_worker w WHERE w.heartbeat_at > clock.now - %(grace)s::interval
    ) AS lost
    CROSS JOIN LATERAL (
        SELECT j.id FROM django_jobs_job j
        WHERE NOT lost.kind_is_known AND j.state IN ('scheduled', 'failed')
            AND j.queue_name = q.queue_name AND j.lane = q.lane AND j.available_at <= clock.now - %(grace)s::interval
            AND NOT EXISTS (
                SELECT 1 FROM django_jobs_pause p
                WHERE p.kind = 'type' AND p.name = j.job_type AND (p.paused_until IS NULL OR p.paused_until > clock.now))
        LIMIT %(limit)s::bigint
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ) AS found
),
ended AS MATERIALIZED (
    SELECT late.id, 'expired' AS reason FROM late
    UNION ALL
    SELECT f.id, f.reason FROM forgotten f WHERE f.id NOT IN (SELECT id FROM late)
)
UPDATE django_jobs_job j
SET state = 'dead_lettered', revision = j.revision + 1, dead_at = clock.now, dead_reason = ended.reason, lane = ''
FROM ended, clock WHERE j.id = ended.id
RETURNING j.id, j.job_type, j.queue_name, j.priority, j.owner, j.dead_reason
