-- purpose: see how resources stand: how many jobs that use them run, and what holds them back
-- guard: none; what is decided with it is read again in the transaction of the claim
-- index: django_jobs_job_held; the unique one of the resources' names
SELECT q.value AS name, (
        SELECT count(*) FROM django_jobs_job j WHERE j.state = 'running' AND j.resource = q.value) AS running,
    r.max_running, r.max_rate, r.behind, r.paused_until, %(now)s AS now
FROM json_each(%(names)s) q
LEFT JOIN django_jobs_resource r ON r.name = q.value
