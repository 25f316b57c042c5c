-- purpose: lease due deliveries of one destination, and open an attempt of each: suspects, or all others
-- guard: state 'pending' and due; rows that others hold are skipped
-- index: django_jobs_delivery_ready, django_jobs_delivery_suspect
UPDATE django_jobs_delivery
SET state = 'claimed', revision = revision + 1, fence = fence + 1, lease_owner = %(worker_id)s, lease_child = %(child)s,
    lease_expires_at = django_jobs_add(%(now)s, %(lease)s), available_at = NULL, attempt_id = due.attempt_id
FROM (
    SELECT ranked.id AS due_id, a.value AS attempt_id
    FROM (
        SELECT first.id, row_number() OVER (ORDER BY first.available_at, first.id) - 1 AS n
        FROM (
            SELECT d.id, d.available_at FROM django_jobs_delivery d
            WHERE d.state = 'pending' AND d.destination = %(destination)s AND d.available_at <= %(now)s
                AND (d.lost_count > 0) = %(suspects)s
            ORDER BY d.available_at, d.id LIMIT %(limit)s
        ) AS first
    ) AS ranked
    JOIN json_each(%(attempt_ids)s) a ON a.key = ranked.n
) AS due
WHERE id = due.due_id
RETURNING id
-- then
INSERT INTO django_jobs_deliveryattempt (id, delivery_id, number, worker_id, alone, started_at, detail)
SELECT d.attempt_id, d.id, d.fence, %(worker_id)s, %(alone)s, %(now)s, ''
FROM django_jobs_delivery d
WHERE d.state IN ('claimed', 'dead_lettered') AND d.state = 'claimed'
    AND d.attempt_id IN (SELECT value FROM json_each(%(attempt_ids)s))
-- then
SELECT d.id, d.event_id, d.destination, d.redispatch, d.ordering_key, d.key_seq, d.fence, d.attempt_id, d.failed_count,
    d.lost_count,
    e.type, e.version, e.source, e.subject, e.tenant, e.data, e.dataref, e.correlation_id,
    e.causation_id, e.traceparent, e.created_at AS event_created_at
FROM django_jobs_delivery d JOIN django_jobs_outboxevent e ON e.id = d.event_id
WHERE d.state IN ('claimed', 'dead_lettered') AND d.state = 'claimed'
    AND d.attempt_id IN (SELECT value FROM json_each(%(attempt_ids)s))
