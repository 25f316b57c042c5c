-- purpose: count what waits in a queue, as far as a limit per kind, and find the one that became due first
-- guard: none; locks nothing
-- index: django_jobs_job_ready; django_jobs_job_due; django_jobs_job_suspect
SELECT count(*) AS depth, min(w.available_at) AS available_at, %(now)s AS now
FROM (
    SELECT * FROM (
        SELECT j.available_at FROM django_jobs_job j
        WHERE j.queue_name = %(queue_name)s AND j.state = 'queued' AND j.isolation = '' LIMIT %(limit)s)
    UNION ALL
    SELECT * FROM (
        SELECT j.available_at FROM django_jobs_job j
        WHERE j.queue_name = %(queue_name)s AND j.state IN ('scheduled', 'failed') LIMIT %(limit)s)
    UNION ALL
    SELECT * FROM (
        SELECT j.available_at FROM django_jobs_job j
        WHERE j.queue_name = %(queue_name)s AND j.state = 'queued' AND NOT j.isolation = '' LIMIT %(limit)s)
) w
