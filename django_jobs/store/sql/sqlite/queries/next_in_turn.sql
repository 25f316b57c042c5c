-- purpose: find, per serial key, the waiting job that has been due for longest and is still useful
-- guard: the caller's transaction is the only one that writes
-- index: django_jobs_job_serial
SELECT ranked.key, ranked.id FROM (
    SELECT j.serial_key AS key, j.id,
        row_number() OVER (PARTITION BY j.serial_key ORDER BY j.available_at, j.id) AS nth
    FROM django_jobs_job j
    WHERE j.serial_key IN (SELECT value FROM json_each(%(keys)s)) AND NOT (j.serial_key = '')
        AND j.state IN ('scheduled', 'queued', 'failed') AND j.available_at <= %(now)s
        AND (j.useful_until IS NULL OR j.useful_until > %(now)s)
) AS ranked
WHERE ranked.nth = 1
