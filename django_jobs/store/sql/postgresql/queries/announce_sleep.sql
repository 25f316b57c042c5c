-- purpose: let producers know that a worker sleeps and wants to be notified
-- guard: what stands there would lapse soon; in the order of names, so that two sleepers cannot deadlock
-- index: primary key of the queue controls
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
INSERT INTO django_jobs_queuecontrol (queue_name, idle_until)
SELECT q.queue_name, clock.now + %(lasting)s::interval
FROM clock, unnest(%(queues)s::text[]) AS q(queue_name)
WHERE NOT EXISTS (
    SELECT 1 FROM django_jobs_queuecontrol c
    WHERE c.queue_name = q.queue_name AND c.idle_until > clock.now + %(lasting)s::interval / 2)
ORDER BY q.queue_name
ON CONFLICT (queue_name) DO UPDATE SET idle_until = EXCLUDED.idle_until
