-- purpose: let ready jobs that have arrived stand behind the one that has the turn of their serial key
-- guard: ready and just arrived, of keys whose turn somebody has; never the one that has it; a bounded number
-- index: django_jobs_job_serial
UPDATE django_jobs_job
SET lane = '~~', revision = revision + 1
WHERE id IN (
    SELECT j.id FROM django_jobs_job j
    WHERE j.serial_key IN (SELECT value FROM json_each(%(keys)s)) AND NOT (j.serial_key = '')
        AND j.state IN ('scheduled', 'queued', 'failed') AND j.state = 'queued' AND j.lane = '~'
        AND j.id NOT IN (SELECT value FROM json_each(%(jobs)s))
    LIMIT %(limit)s)
RETURNING id
