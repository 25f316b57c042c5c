-- invariant: O4
-- meaning: published means that the last attempt was confirmed; the number of attempts is the delivery's fence
-- about: delivery
SELECT d.id
FROM django_jobs_delivery d
LEFT JOIN django_jobs_deliveryattempt a ON a.delivery_id = d.id AND a.number = d.fence
WHERE d.state = 'published' AND (a.outcome IS NULL OR a.outcome <> 'confirmed')
UNION
SELECT d.id
FROM django_jobs_delivery d
LEFT JOIN (
    SELECT delivery_id, COUNT(*) AS many, MAX(number) AS highest FROM django_jobs_deliveryattempt GROUP BY delivery_id
) a ON a.delivery_id = d.id
WHERE d.fence <> COALESCE(a.many, 0) OR d.fence <> COALESCE(a.highest, 0)
