-- invariant: E16
-- meaning: an unfinished job whose effect another job took over has a stake in it, with an attempt of its own
-- about: effect
SELECT s.effect_id AS id
FROM django_jobs_send s
JOIN django_jobs_sideeffect e ON e.id = s.effect_id
JOIN django_jobs_job j ON j.id = s.job_id
WHERE e.job_id <> j.id AND j.state NOT IN ('succeeded', 'cancelled') AND j.resolution IS NULL AND NOT EXISTS (
    SELECT 1 FROM django_jobs_effectstake k WHERE k.effect_id = e.id AND k.job_id = j.id AND k.owned)
UNION
SELECT k.effect_id AS id
FROM django_jobs_effectstake k
LEFT JOIN django_jobs_attempt a ON a.id = k.attempt_id
WHERE (k.attempt_id IS NULL AND NOT k.owned)
    OR (k.attempt_id IS NOT NULL AND (a.id IS NULL OR a.job_id <> k.job_id))
