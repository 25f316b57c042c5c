-- invariant: J7
-- meaning: a dead letter has a known reason and a time, and no finished job owns an effect that waits for review
-- about: job
SELECT j.id
FROM django_jobs_job j
WHERE (j.state = 'dead_lettered' AND (j.dead_at IS NULL OR j.dead_reason NOT IN (
        'permanent', 'payload', 'attempts', 'unknown_budget', 'age', 'expired', 'unchanged', 'poison', 'no_progress',
        'unknown_type', 'version', 'effect_review', 'effect_open', 'cancelled')))
    OR (j.state <> 'dead_lettered' AND (j.dead_at IS NOT NULL OR j.dead_reason <> '' OR j.resolution IS NOT NULL))
UNION
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_sideeffect e ON e.job_id = j.id
WHERE e.needs_review AND e.state NOT IN ('succeeded', 'abandoned') AND j.state IN ('succeeded', 'cancelled')
