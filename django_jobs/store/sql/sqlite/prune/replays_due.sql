-- purpose: of the next requests to replay many, say which ended long ago
-- guard: none; locks nothing
-- index: primary key
SELECT r.id, CASE
    WHEN r.state IN ('waiting', 'running') OR r.finished_at IS NULL OR r.finished_at >= %(rows_before)s THEN 'young'
    ELSE '' END AS kept
FROM django_jobs_replayrequest r
WHERE r.id > %(after)s AND r.id <= %(upto)s
ORDER BY r.id LIMIT %(limit)s
