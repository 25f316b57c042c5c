-- purpose: find, per serial key, the waiting job that has been due for longest and is still useful
-- guard: the caller holds the turns of these keys
-- index: django_jobs_job_serial
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT k.key, next.id
FROM clock, unnest(%(keys)s::text[]) AS k(key)
CROSS JOIN LATERAL (
    SELECT j.id FROM django_jobs_job j
    WHERE j.serial_key = k.key AND j.serial_key <> '' AND j.state IN ('scheduled', 'queued', 'failed')
        AND j.available_at <= clock.now AND (j.useful_until IS NULL OR j.useful_until > clock.now)
    ORDER BY j.available_at, j.id
    LIMIT 1
) AS next
