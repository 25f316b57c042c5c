-- purpose: delete rows of messages that need not be remembered any longer
-- guard: past keep_until, and no event of this site that is still on record
-- index: primary key
DELETE FROM django_jobs_inboxmessage
WHERE id IN (
    SELECT i.id FROM django_jobs_inboxmessage i
    WHERE i.id <= %(upto)s AND i.keep_until < %(now)s
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_outboxevent e WHERE e.id = LOWER(REPLACE(i.message_id, '-', '')))
    ORDER BY i.id LIMIT %(limit)s)
RETURNING id
