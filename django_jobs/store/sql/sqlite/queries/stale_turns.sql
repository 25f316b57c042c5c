-- purpose: find the serial keys of which the turn is of a job that has ended, of one that waits all the same, or of nobody
-- guard: none; locks nothing
-- index: primary key of the jobs; the turns are read whole, one row per key in use
SELECT t.key
FROM django_jobs_serialturn t
LEFT JOIN django_jobs_job j ON j.id = t.job_id
WHERE j.id IS NULL OR j.finished_at IS NOT NULL OR (j.state = 'dead_lettered' AND j.serial_skips)
    OR (j.state = 'queued' AND j.lane IN ('~', '~~'))
LIMIT %(limit)s
