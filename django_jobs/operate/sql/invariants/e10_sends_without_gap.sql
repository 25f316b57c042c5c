-- invariant: E10
-- meaning: an effect's sends are numbered from 1 without a gap
-- about: effect
SELECT effect_id AS id
FROM django_jobs_send
GROUP BY effect_id
HAVING MIN(number) <> 1 OR MAX(number) <> COUNT(*)
