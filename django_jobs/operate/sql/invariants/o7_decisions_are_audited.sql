-- invariant: O7
-- meaning: discarding, dispatching again and rerouting are audited
-- about: delivery
SELECT d.id
FROM django_jobs_delivery d
WHERE d.state = 'discarded' AND NOT EXISTS (
    SELECT 1 FROM django_jobs_operatoraction a WHERE a.action = 'discard_delivery' AND a.delivery_id = d.id)
UNION
SELECT d.id
FROM django_jobs_delivery d
WHERE d.redispatch > 0
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_operatoraction a WHERE a.action = 'redispatch' AND a.event_id = d.event_id)
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_operatoraction a WHERE a.action = 'reroute' AND a.created_at <= d.created_at)
