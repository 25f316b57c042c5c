-- purpose: tell in which of these queues somebody sleeps; SQLite has nothing to notify with
-- guard: somebody sleeps and waits for it
-- index: primary key of the queue controls
SELECT queue_name FROM django_jobs_queuecontrol
WHERE queue_name IN (SELECT value FROM json_each(%(queues)s)) AND idle_until > %(now)s
