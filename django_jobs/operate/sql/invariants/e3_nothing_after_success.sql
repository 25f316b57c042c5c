-- invariant: E3
-- meaning: nothing is sent after success was recorded, or after the outcome was given up
-- about: effect
SELECT s.effect_id AS id
FROM django_jobs_send s
JOIN django_jobs_sideeffect e ON e.id = s.effect_id
WHERE e.resolved_at IS NOT NULL AND s.started_at > e.resolved_at
