-- purpose: of the next messages that were put aside, say which are old
-- guard: none; locks nothing
-- index: primary key
SELECT q.id, CASE WHEN q.created_at >= %(quarantine_before)s THEN 'young' ELSE '' END AS kept
FROM django_jobs_quarantine q
WHERE q.id > %(after)s AND q.id <= %(upto)s
ORDER BY q.id LIMIT %(limit)s
