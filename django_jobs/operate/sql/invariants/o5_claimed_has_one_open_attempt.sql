-- invariant: O5
-- meaning: a claimed delivery has exactly one open attempt, its own; any other has none
-- about: delivery
SELECT d.id
FROM django_jobs_delivery d
LEFT JOIN django_jobs_deliveryattempt a ON a.delivery_id = d.id AND a.outcome IS NULL
WHERE (d.state = 'claimed' AND (
        a.id IS NULL OR a.id <> d.attempt_id OR a.number <> d.fence OR a.worker_id <> d.lease_owner))
    OR (d.state <> 'claimed' AND a.id IS NOT NULL)
UNION
SELECT a.delivery_id
FROM django_jobs_deliveryattempt a
LEFT JOIN django_jobs_delivery d ON d.id = a.delivery_id
WHERE d.id IS NULL
