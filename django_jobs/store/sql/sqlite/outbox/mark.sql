-- purpose: record that destinations confirmed deliveries, and let the next of each ordering key go
-- guard: 'claimed' under the attempt that is named, or 'pending' after it, as lost; promotes where it marked, what still waits
-- index: primary keys; django_jobs_delivery_head
UPDATE django_jobs_deliveryattempt
SET finished_at = %(now)s, outcome = 'confirmed', status = (
        SELECT json_extract(g.value, '$[3]') FROM json_each(%(rows)s) g
        WHERE json_extract(g.value, '$[1]') = django_jobs_deliveryattempt.id)
WHERE id IN (SELECT json_extract(value, '$[1]') FROM json_each(%(rows)s)) AND (outcome IS NULL OR outcome = 'lost')
-- then
UPDATE django_jobs_delivery
SET state = 'pending', available_at = %(now)s, revision = revision + 1
WHERE state = 'waiting' AND id IN (
    SELECT (
        SELECT w.id FROM django_jobs_delivery w
        WHERE w.destination = m.destination AND w.ordering_key = m.ordering_key AND NOT (w.ordering_key = '')
            AND w.redispatch = 0 AND w.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND w.key_seq > m.key_seq
        ORDER BY w.key_seq LIMIT 1)
    FROM django_jobs_delivery m
    WHERE m.id IN (SELECT json_extract(value, '$[0]') FROM json_each(%(rows)s)) AND (
        (m.state = 'claimed' AND m.attempt_id IN (SELECT json_extract(value, '$[1]') FROM json_each(%(rows)s)))
        OR (m.state = 'pending' AND m.fence = (
            SELECT a.number FROM django_jobs_deliveryattempt a
            WHERE a.delivery_id = m.id AND a.outcome = 'confirmed'
                AND a.id IN (SELECT json_extract(value, '$[1]') FROM json_each(%(rows)s)))))
        AND m.redispatch = 0 AND NOT (m.ordering_key = ''))
-- then
UPDATE django_jobs_delivery
SET state = 'published', revision = revision + 1, published_at = %(now)s, available_at = NULL, lease_owner = NULL,
    lease_child = NULL, lease_expires_at = NULL, lost_count = 0,
    receipt = (
        SELECT json_extract(g.value, '$[2]') FROM json_each(%(rows)s) g
        WHERE json_extract(g.value, '$[0]') = django_jobs_delivery.id),
    attempt_id = NULL
WHERE (
        (state = 'claimed' AND attempt_id IN (SELECT json_extract(value, '$[1]') FROM json_each(%(rows)s)))
        OR (state = 'pending' AND fence = (
            SELECT a.number FROM django_jobs_deliveryattempt a
            WHERE a.delivery_id = django_jobs_delivery.id AND a.outcome = 'confirmed'
                AND a.id IN (SELECT json_extract(value, '$[1]') FROM json_each(%(rows)s)))))
    AND id IN (SELECT json_extract(value, '$[0]') FROM json_each(%(rows)s))
RETURNING id
