-- purpose: find, per queue, lane and priority, the job that has been due for longest
-- guard: none; set-aside jobs do not count
-- index: django_jobs_job_ready, django_jobs_job_due
SELECT s.queue_name, s.lane, s.job_type, s.priority, min(s.available_at) AS available_at, %(now)s AS now
FROM (
    SELECT j.queue_name, j.lane, j.job_type, j.priority, j.available_at FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation = ''
    UNION ALL
    SELECT j.queue_name, j.lane, j.job_type, j.priority, j.available_at FROM django_jobs_job j
    WHERE j.state IN ('scheduled', 'failed') AND j.lane = '' AND j.available_at <= %(now)s
) AS s
GROUP BY s.queue_name, s.lane, s.priority
