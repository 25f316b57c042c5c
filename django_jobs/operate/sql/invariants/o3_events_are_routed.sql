-- invariant: O3
-- meaning: an event has as many deliveries by its routes as it was routed to, and each delivery has its event and its event's order
-- about: row
SELECT e.id
FROM django_jobs_outboxevent e
LEFT JOIN (
    SELECT event_id, COUNT(*) AS many FROM django_jobs_delivery WHERE redispatch = 0 GROUP BY event_id
) d ON d.event_id = e.id
WHERE e.routed_count <> COALESCE(d.many, 0)
UNION
SELECT d.id
FROM django_jobs_delivery d
LEFT JOIN django_jobs_outboxevent e ON e.id = d.event_id
WHERE e.id IS NULL OR e.ordering_key <> d.ordering_key OR COALESCE(e.key_seq, 0) <> COALESCE(d.key_seq, 0)
