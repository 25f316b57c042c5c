-- purpose: read the workers that have not stopped and told that they live within the last day
-- guard: none; locks nothing
-- index: none; the table holds few rows
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT w.name, w.queues, w.threads, w.coroutines, w.processes, w.heartbeat_at, w.stopping_at, clock.now
FROM django_jobs_worker w, clock
WHERE w.stopped_at IS NULL AND w.heartbeat_at > clock.now - interval '1 day'
ORDER BY w.name
