-- purpose: see how resources stand: how many jobs that use them run, and what holds them back
-- guard: none; what is decided with it is read again under the resource's lock
-- index: django_jobs_job_held; the unique one of the resources' names
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
running AS MATERIALIZED (
    SELECT j.resource, count(*) AS many FROM django_jobs_job j
    WHERE j.state = 'running' AND j.resource = ANY(%(names)s::text[])
    GROUP BY j.resource
)
SELECT q.name, COALESCE(running.many, 0) AS running, r.max_running, r.max_rate, r.behind, r.paused_until, clock.now
FROM clock, unnest(%(names)s::text[]) AS q(name)
LEFT JOIN running ON running.resource = q.name
LEFT JOIN django_jobs_resource r ON r.name = q.name
