-- purpose: let no job start that uses a resource until the downstream's own time; never shortens what it asked for before
-- guard: none; the later time wins
-- index: the unique one of the names
INSERT INTO django_jobs_resource (id, name, max_rate, paused_until, paused_by)
VALUES (%(id)s, %(name)s, '', django_jobs_add(%(now)s, %(span)s), %(job_id)s)
ON CONFLICT (name) DO UPDATE SET paused_until = excluded.paused_until, paused_by = excluded.paused_by
WHERE django_jobs_resource.paused_until IS NULL OR django_jobs_resource.paused_until < excluded.paused_until
RETURNING paused_until
