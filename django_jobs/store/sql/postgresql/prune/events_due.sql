-- purpose: of the next events, say which may be deleted with their deliveries and what keeps the others
-- guard: none; locks nothing
-- index: primary key; django_jobs_delivery_once; django_jobs_delivery_attempt_number; django_jobs_event_in_order
WITH looked AS MATERIALIZED (
    SELECT e.id, e.ordering_key, e.key_seq, e.created_at FROM django_jobs_outboxevent e
    WHERE e.id > %(after)s::uuid AND e.id <= %(upto)s::uuid
    ORDER BY e.id LIMIT %(limit)s::bigint
),
sent AS MATERIALIZED (
    SELECT l.id,
        MAX(CASE WHEN d.state IN ('published', 'discarded') THEN 0 ELSE 1 END) AS unsettled,
        MAX(CASE
            WHEN d.created_at >= %(events_before)s::timestamptz OR d.published_at >= %(events_before)s::timestamptz THEN 1
            WHEN d.state = 'discarded' AND EXISTS (
                SELECT 1 FROM django_jobs_deliveryattempt a
                WHERE a.delivery_id = d.id AND a.number = d.fence AND a.finished_at >= %(events_before)s::timestamptz) THEN 1
            ELSE 0 END) AS young
    FROM looked l JOIN django_jobs_delivery d ON d.event_id = l.id GROUP BY l.id
),
judged AS MATERIALIZED (
    SELECT l.id, l.ordering_key, l.key_seq, CASE
        WHEN l.created_at >= %(events_before)s::timestamptz THEN 'young'
        WHEN s.unsettled = 1 THEN 'undelivered'
        WHEN s.young = 1 THEN 'young'
        WHEN %(held)s::uuid[] IS NOT NULL AND NOT l.id = ANY(%(held)s::uuid[]) THEN 'busy'
        ELSE '' END AS kept
    FROM looked l LEFT JOIN sent s ON s.id = l.id
),
staying AS MATERIALIZED (
    SELECT k.ordering_key, (
        SELECT e.key_seq FROM django_jobs_outboxevent e
        WHERE e.ordering_key = k.ordering_key AND NOT (e.ordering_key = '')
            AND e.key_seq > COALESCE((
                SELECT p.last_seq FROM django_jobs_prunedorder p WHERE p.ordering_key = k.ordering_key), 0)
            AND e.id NOT IN (SELECT j.id FROM judged j WHERE j.kept = '')
        ORDER BY e.key_seq LIMIT 1) AS first_seq
    FROM (SELECT DISTINCT ordering_key FROM judged WHERE kept = '' AND ordering_key <> '') AS k
)
SELECT j.id, CASE WHEN j.kept = '' AND j.key_seq > t.first_seq THEN 'order' ELSE j.kept END AS kept
FROM judged j LEFT JOIN staying t ON t.ordering_key = j.ordering_key
ORDER BY j.id
