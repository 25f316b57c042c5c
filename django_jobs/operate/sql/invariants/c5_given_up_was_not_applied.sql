-- invariant: C5
-- meaning: no compensation was given up after what takes its effect back had been applied, by its job or by an earlier one
-- about: row
SELECT c.id
FROM django_jobs_compensation c
JOIN django_jobs_sideeffect e ON e.id = c.effect_id
JOIN django_jobs_sideeffect t ON t.name = 'compensation' AND t.tenant = e.tenant AND t.provider = e.provider
    -- ids are text without dashes on SQLite
    AND REPLACE(t.business_key, '-', '') = 'compensate:' || REPLACE(CAST(c.effect_id AS TEXT), '-', '')
WHERE c.outcome = 'void' AND t.state = 'succeeded' AND t.resolved_at <= c.closed_at
