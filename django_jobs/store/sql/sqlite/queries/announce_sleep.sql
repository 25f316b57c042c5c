-- purpose: let producers know that a worker sleeps
-- guard: what stands there would lapse soon
-- index: primary key of the queue controls
INSERT INTO django_jobs_queuecontrol (queue_name, idle_until)
SELECT q.value, django_jobs_add(%(now)s, %(lasting)s)
FROM json_each(%(queues)s) AS q
WHERE NOT EXISTS (
    SELECT 1 FROM django_jobs_queuecontrol c
    WHERE c.queue_name = q.value AND c.idle_until > django_jobs_add(%(now)s, %(lasting)s / 2))
ORDER BY q.value
ON CONFLICT (queue_name) DO UPDATE SET idle_until = excluded.idle_until
