-- invariant: E6
-- meaning: a new key epoch begins only after every earlier send is known not to have been applied
-- about: effect
SELECT n.effect_id AS id
FROM django_jobs_send n
JOIN django_jobs_send o ON o.effect_id = n.effect_id AND o.epoch < n.epoch
WHERE o.outcome IS NULL OR o.outcome IN ('unknown', 'confirmed') OR o.number > n.number
