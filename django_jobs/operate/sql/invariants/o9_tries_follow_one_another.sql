-- invariant: O9
-- meaning: no try to deliver begins before the one before it ended
-- about: delivery
SELECT b.delivery_id AS id
FROM django_jobs_deliveryattempt a
JOIN django_jobs_deliveryattempt b ON b.delivery_id = a.delivery_id AND b.number = a.number + 1
WHERE b.started_at < a.finished_at OR a.finished_at < a.started_at
