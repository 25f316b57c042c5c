-- invariant: O9
-- meaning: no try to deliver begins before the one before it ended
-- about: delivery
-- One that was lost may be confirmed later, by whoever was not dead after all: evidence, not a second owner.
SELECT b.delivery_id AS id
FROM django_jobs_deliveryattempt a
JOIN django_jobs_deliveryattempt b ON b.delivery_id = a.delivery_id AND b.number = a.number + 1
WHERE (b.started_at < a.finished_at AND a.outcome <> 'confirmed') OR a.finished_at < a.started_at
