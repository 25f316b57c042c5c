-- purpose: delete old rows of answered enqueues
-- guard: old
-- index: primary key
DELETE FROM django_jobs_duplicateenqueue
WHERE id IN (
    SELECT id FROM django_jobs_duplicateenqueue
    WHERE id <= %(upto)s AND created_at < %(rows_before)s
    ORDER BY id LIMIT %(limit)s)
RETURNING id
