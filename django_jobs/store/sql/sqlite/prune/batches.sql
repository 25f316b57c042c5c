-- purpose: delete batches that were closed long ago and whose members are gone
-- guard: closed, without a member: nobody adds one or replays one
-- index: primary key; django_jobs_job_batch
DELETE FROM django_jobs_batch
WHERE id IN (
    SELECT b.id FROM django_jobs_batch b
    WHERE b.id <= %(upto)s AND b.closed_at < %(rows_before)s
        AND NOT EXISTS (SELECT 1 FROM django_jobs_job j WHERE j.batch_id = b.id)
    ORDER BY b.id LIMIT %(limit)s)
RETURNING id
