-- purpose: notify queues in which something has become due
-- guard: somebody sleeps and waits for it
-- index: primary key of the queue controls
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT c.queue_name, pg_notify('django_jobs_wake', c.queue_name)
FROM django_jobs_queuecontrol c, clock
WHERE c.queue_name = ANY(%(queues)s::text[]) AND c.idle_until > clock.now
