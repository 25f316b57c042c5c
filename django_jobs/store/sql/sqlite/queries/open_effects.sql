-- purpose: count side effects whose outcome is not known, by name, with the time of the oldest
-- guard: none; an open effect belongs to an unfinished job, so it is found through those; of dead letters at most the limit
-- index: django_jobs_job_ready, django_jobs_job_due, django_jobs_job_held, the index of effects by job
SELECT e.name, count(*) AS many, min(e.created_at) AS created_at, %(now)s AS now
FROM (
    SELECT j.id FROM django_jobs_job j WHERE j.state = 'queued' AND j.isolation = '' AND j.fence > 0
    UNION ALL
    SELECT j.id FROM django_jobs_job j WHERE j.state = 'queued' AND NOT (j.isolation = '')
    UNION ALL
    SELECT j.id FROM django_jobs_job j WHERE j.state IN ('scheduled', 'failed') AND j.fence > 0
    UNION ALL
    SELECT j.id FROM django_jobs_job j WHERE j.state = 'running'
    UNION ALL
    SELECT d.id FROM (
        SELECT j.id, j.resolution FROM django_jobs_job j
        WHERE j.state = 'dead_lettered' ORDER BY j.id DESC LIMIT %(limit)s
    ) AS d
    WHERE d.resolution IS NULL
) AS b
CROSS JOIN django_jobs_sideeffect e
WHERE e.job_id = b.id AND (e.state IN ('in_flight', 'ambiguous') OR (e.needs_review AND e.state <> 'abandoned'))
GROUP BY e.name
