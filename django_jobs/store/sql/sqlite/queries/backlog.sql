-- purpose: count unfinished jobs by queue, type, band and state, and find the one of each that became due first
-- guard: none; what waits is read whole, of dead letters at most the limit
-- index: django_jobs_job_ready, django_jobs_job_due, django_jobs_job_watched, django_jobs_job_held
SELECT s.queue_name, s.job_type, s.band, s.stands, count(*) AS many, min(s.available_at) AS available_at,
    sum(CASE WHEN s.lease_ends < %(now)s THEN 1 ELSE 0 END) AS expired, count(DISTINCT s.error) AS errors, %(now)s AS now
FROM (
    SELECT j.queue_name, j.job_type, (j.priority > 0) - (j.priority < 0) AS band,
        CASE j.lane WHEN '~~' THEN 'behind' ELSE 'queued' END AS stands, j.available_at, NULL AS lease_ends, NULL AS error
    FROM django_jobs_job j WHERE j.state = 'queued' AND j.isolation = ''
    UNION ALL
    SELECT j.queue_name, j.job_type, (j.priority > 0) - (j.priority < 0), 'queued', j.available_at, NULL, NULL
    FROM django_jobs_job j WHERE j.state = 'queued' AND NOT (j.isolation = '')
    UNION ALL
    SELECT j.queue_name, j.job_type, (j.priority > 0) - (j.priority < 0),
        CASE WHEN substr(j.lane, 1, 1) = '!' THEN 'aside' WHEN j.state = 'failed' THEN 'retry' ELSE 'scheduled' END,
        j.available_at, NULL, NULL
    FROM django_jobs_job j WHERE j.state IN ('scheduled', 'failed')
    UNION ALL
    SELECT j.queue_name, j.job_type, (j.priority > 0) - (j.priority < 0), 'running', NULL, j.lease_expires_at, NULL
    FROM django_jobs_job j WHERE j.state = 'running'
    UNION ALL
    SELECT d.queue_name, d.job_type, (d.priority > 0) - (d.priority < 0), 'dead_lettered', NULL, NULL, d.error_fingerprint
    FROM (
        SELECT j.queue_name, j.job_type, j.priority, j.resolution, j.error_fingerprint FROM django_jobs_job j
        WHERE j.state = 'dead_lettered' ORDER BY j.id DESC LIMIT %(limit)s
    ) AS d
    WHERE d.resolution IS NULL
) AS s
GROUP BY s.queue_name, s.job_type, s.band, s.stands
