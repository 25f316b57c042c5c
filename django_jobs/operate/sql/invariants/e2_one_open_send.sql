-- invariant: E2
-- meaning: an effect has at most one open send, and it is the newest
-- about: effect
SELECT s.effect_id AS id
FROM django_jobs_send s
JOIN django_jobs_send later ON later.effect_id = s.effect_id AND later.number > s.number
WHERE s.outcome IS NULL
