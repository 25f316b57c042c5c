-- invariant: C1
-- meaning: only an applied effect is taken back, at most once, by a compensation job of its own, and an audit row says who and why
-- about: row
SELECT c.id
FROM django_jobs_compensation c
LEFT JOIN django_jobs_sideeffect e ON e.id = c.effect_id
LEFT JOIN django_jobs_job o ON o.id = c.original_job_id
LEFT JOIN django_jobs_job j ON j.id = c.job_id
LEFT JOIN django_jobs_operatoraction a ON a.id = c.action_id
WHERE e.id IS NULL OR e.state <> 'succeeded' OR e.job_id <> c.original_job_id
    OR o.id IS NULL OR (c.outcome <> 'void' AND o.state NOT IN ('succeeded', 'cancelled', 'dead_lettered'))
    OR j.id IS NULL OR j.id = o.id OR j.job_type <> 'django_jobs.compensate'
    OR a.id IS NULL OR a.action <> 'compensate' OR a.actor = '' OR a.reason = ''
    OR COALESCE(a.job_id <> c.original_job_id, TRUE) OR COALESCE(a.effect_id <> c.effect_id, TRUE)
UNION
SELECT c.id
FROM django_jobs_compensation c
JOIN django_jobs_compensation other ON other.effect_id = c.effect_id AND other.id <> c.id
WHERE c.outcome <> 'void' AND other.outcome <> 'void'
UNION
SELECT c.id
FROM django_jobs_compensation c
JOIN django_jobs_compensation other ON other.job_id = c.job_id AND other.id <> c.id
