-- purpose: of the next messages that were taken, say which need not be remembered any longer
-- guard: none; locks nothing
-- index: primary key; primary key of the events
WITH looked AS MATERIALIZED (
    SELECT i.id, i.keep_until, CASE
        WHEN i.message_id ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$' THEN i.message_id::uuid END AS event_id
    FROM django_jobs_inboxmessage i
    WHERE i.id > %(after)s::uuid AND i.id <= %(upto)s::uuid
    ORDER BY i.id LIMIT %(limit)s::bigint
)
SELECT l.id, CASE
    WHEN l.keep_until >= %(now)s::timestamptz THEN 'young'
    WHEN e.id IS NOT NULL THEN 'event'
    ELSE '' END AS kept
FROM looked l LEFT JOIN django_jobs_outboxevent e ON e.id = l.event_id
ORDER BY l.id
