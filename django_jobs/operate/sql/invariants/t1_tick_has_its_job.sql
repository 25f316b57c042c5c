-- invariant: T1
-- meaning: a tick that was enqueued, or that another job stood for, names that job, which exists or was pruned; a refused one has none
-- about: row
SELECT tick.id
FROM django_jobs_scheduletick tick
WHERE (tick.outcome = 'refused' AND (tick.job_id IS NOT NULL OR tick.message = ''))
    OR (tick.outcome <> 'refused' AND tick.job_id IS NULL)
UNION ALL
SELECT tick.id
FROM django_jobs_scheduletick tick
LEFT JOIN django_jobs_job j ON j.id = tick.job_id
WHERE tick.job_id IS NOT NULL AND j.id IS NULL AND NOT EXISTS (
    SELECT 1 FROM django_jobs_prunedstretch t
    WHERE t.kind = 'jobs' AND t.last_job_id >= tick.job_id AND t.first_job_id <= tick.job_id)
