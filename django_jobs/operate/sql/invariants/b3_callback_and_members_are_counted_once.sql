-- invariant: B3
-- meaning: no job is the callback of two batches, and no batch has more members than were counted when it was closed
-- about: row
SELECT b.id
FROM django_jobs_batch b
JOIN (
    SELECT callback_job_id FROM django_jobs_batch WHERE callback_job_id IS NOT NULL
    GROUP BY callback_job_id HAVING COUNT(*) > 1
) AS twice ON twice.callback_job_id = b.callback_job_id
UNION
SELECT b.id
FROM django_jobs_batch b
JOIN (
    SELECT batch_id, COUNT(*) AS many FROM django_jobs_job WHERE batch_id IS NOT NULL GROUP BY batch_id
) AS members ON members.batch_id = b.id
WHERE b.closed_at IS NOT NULL AND members.many > b.succeeded + b.cancelled + b.resolved + b.dead
