-- invariant: B2
-- meaning: a closed batch with a callback names the job of that type which it became, which exists or was pruned; an open one names none
-- about: row
SELECT b.id
FROM django_jobs_batch b
WHERE (b.closed_at IS NULL AND b.callback_job_id IS NOT NULL)
    OR (b.closed_at IS NOT NULL AND (b.callback_type = '') <> (b.callback_job_id IS NULL))
UNION
SELECT b.id
FROM django_jobs_batch b
LEFT JOIN django_jobs_job j ON j.id = b.callback_job_id
WHERE b.callback_job_id IS NOT NULL AND j.id IS NULL AND NOT EXISTS (
    SELECT 1 FROM django_jobs_prunedstretch t
    WHERE t.kind = 'jobs' AND t.last_job_id >= b.callback_job_id AND t.first_job_id <= b.callback_job_id)
UNION
SELECT b.id
FROM django_jobs_batch b
JOIN django_jobs_job j ON j.id = b.callback_job_id
LEFT JOIN django_jobs_jobpayload p ON p.job_id = j.id
WHERE j.job_type <> b.callback_type OR (j.content_removed_at IS NULL AND COALESCE(p.key, '') NOT LIKE 'batch:%')
