-- purpose: read the workers that have not stopped and told that they live within the last day
-- guard: none
-- index: none; the table holds few rows
SELECT w.name, w.queues, w.threads, w.coroutines, w.processes, w.heartbeat_at, w.stopping_at, %(now)s AS now
FROM django_jobs_worker w
WHERE w.stopped_at IS NULL AND w.heartbeat_at > django_jobs_add(%(now)s, -86400)
ORDER BY w.name
