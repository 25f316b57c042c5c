-- purpose: move jobs that have become due to the ready index, high priorities first; set aside those nobody may or can run
-- guard: state 'scheduled' or 'failed', due, in the lane that is asked for
-- index: django_jobs_job_due
UPDATE django_jobs_job
SET state = CASE WHEN %(runnable)s IS NULL
        OR job_type || ' ' || payload_version IN (SELECT value FROM json_each(%(runnable)s)) THEN 'queued' ELSE state END,
    lane = CASE WHEN %(runnable)s IS NULL
        OR job_type || ' ' || payload_version IN (SELECT value FROM json_each(%(runnable)s)) THEN CASE WHEN serial_key <> '' THEN '~' ELSE resource END
        ELSE '!' || job_type || ' ' || payload_version END,
    revision = revision + 1
WHERE id IN (
    SELECT ranked.id FROM (
        SELECT j.id, row_number() OVER (
            PARTITION BY j.queue_name, j.lane
            ORDER BY CASE WHEN j.priority > 0 THEN 1 WHEN j.priority < 0 THEN -1 ELSE 0 END DESC, j.available_at) AS nth
        FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.available_at <= %(now)s
            AND (j.queue_name, j.lane) IN (
                SELECT q.value, l.value FROM json_each(%(queues)s) q JOIN json_each(%(lanes)s) l ON l.key = q.key)
    ) AS ranked
    WHERE ranked.nth <= %(limit)s)
RETURNING id, state, job_type || ' ' || payload_version AS kind
