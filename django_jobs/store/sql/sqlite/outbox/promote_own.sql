-- purpose: let the waiting deliveries of an event go that nothing unfinished precedes any more
-- guard: state 'waiting', asked again under the row lock
-- index: django_jobs_delivery_once, django_jobs_delivery_head
UPDATE django_jobs_delivery
SET state = 'pending', available_at = %(now)s, revision = revision + 1
WHERE event_id = %(event_id)s AND redispatch = 0 AND state = 'waiting'
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_delivery d
        WHERE d.destination = django_jobs_delivery.destination AND d.ordering_key = django_jobs_delivery.ordering_key
            AND NOT (d.ordering_key = '') AND d.redispatch = 0
            AND d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.key_seq < django_jobs_delivery.key_seq)
RETURNING id
