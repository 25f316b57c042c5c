-- purpose: delete rows of messages that need not be remembered any longer
-- guard: past keep_until, and no event of this site that is still on record; rows that others hold are skipped
-- index: primary key
DELETE FROM django_jobs_inboxmessage m
USING (
    SELECT i.id FROM django_jobs_inboxmessage i
    WHERE i.id <= %(upto)s::uuid AND i.keep_until < %(now)s::timestamptz
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_outboxevent e
            WHERE e.id = CASE
                WHEN i.message_id ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$' THEN i.message_id::uuid END)
    ORDER BY i.id LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
) AS old
WHERE m.id = old.id
RETURNING m.id
