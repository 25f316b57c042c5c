-- purpose: delete old rows of answered enqueues
-- guard: old; rows that others hold are skipped
-- index: primary key
DELETE FROM django_jobs_duplicateenqueue d
USING (
    SELECT id FROM django_jobs_duplicateenqueue
    WHERE id <= %(upto)s::uuid AND created_at < %(rows_before)s::timestamptz
    ORDER BY id LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
) AS old
WHERE d.id = old.id
RETURNING d.id
