-- invariant: E5
-- meaning: one key epoch means one request and one key, byte for byte, and the effect's epoch is the newest
-- about: effect
-- A digest that pruning removed is empty.
SELECT effect_id AS id
FROM django_jobs_send
GROUP BY effect_id, epoch
HAVING COUNT(DISTINCT NULLIF(request_digest, '')) > 1 OR COUNT(DISTINCT provider_key) > 1
UNION
SELECT e.id
FROM django_jobs_sideeffect e
JOIN django_jobs_send s ON s.effect_id = e.id
WHERE s.epoch > e.epoch OR (s.epoch = e.epoch AND s.request_digest <> '' AND s.request_digest <> e.request_digest)
