-- purpose: of the next messages that were taken, say which need not be remembered any longer
-- guard: none; locks nothing
-- index: primary key; primary key of the events
WITH looked AS MATERIALIZED (
    SELECT i.id, i.keep_until, LOWER(REPLACE(i.message_id, '-', '')) AS event_id
    FROM django_jobs_inboxmessage i
    WHERE i.id > %(after)s AND i.id <= %(upto)s
    ORDER BY i.id LIMIT %(limit)s
)
SELECT l.id, CASE
    WHEN l.keep_until >= %(now)s THEN 'young'
    WHEN e.id IS NOT NULL THEN 'event'
    ELSE '' END AS kept
FROM looked l LEFT JOIN django_jobs_outboxevent e ON e.id = l.event_id
ORDER BY l.id
