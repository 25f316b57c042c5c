-- invariant: A4
-- meaning: decisions about a job were made in the order of its revisions, from a state that allows them
-- about: row
SELECT a.id
FROM django_jobs_operatoraction a
JOIN django_jobs_job j ON j.id = a.job_id
WHERE (a.effect_id IS NULL AND a.from_revision > j.revision) OR a.from_generation > j.generation
UNION
SELECT later.id
FROM django_jobs_operatoraction a
JOIN django_jobs_operatoraction later ON later.job_id = a.job_id AND later.created_at > a.created_at
WHERE a.effect_id IS NULL AND later.effect_id IS NULL AND later.from_revision < a.from_revision
UNION
SELECT a.id
FROM django_jobs_operatoraction a
WHERE (a.action IN ('replay', 'discard') AND a.from_state <> 'dead_lettered')
    OR (a.action = 'cancel' AND a.from_state NOT IN ('scheduled', 'queued', 'running', 'failed'))
    OR (a.action = 'run_now' AND a.from_state NOT IN ('scheduled', 'failed'))
    OR (a.action = 'expire_lease' AND a.from_state <> 'running')
