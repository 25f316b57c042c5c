-- purpose: let no job start that uses a resource until the downstream's own time; never shortens what it asked for before
-- guard: none; the later time wins
-- index: the unique one of the names
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
INSERT INTO django_jobs_resource AS r (id, name, max_rate, paused_until, paused_by)
SELECT %(id)s::uuid, %(name)s::text, '', clock.now + %(span)s::interval, %(job_id)s::uuid FROM clock
ON CONFLICT (name) DO UPDATE SET paused_until = excluded.paused_until, paused_by = excluded.paused_by
WHERE r.paused_until IS NULL OR r.paused_until < excluded.paused_until
RETURNING r.paused_until
