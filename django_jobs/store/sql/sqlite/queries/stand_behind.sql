-- purpose: let ready jobs that have arrived stand behind the one that has the turn of their serial key
-- guard: ready and just arrived, of keys whose turns are given in this transaction
-- index: django_jobs_job_serial
UPDATE django_jobs_job
SET lane = '~~', revision = revision + 1
WHERE serial_key IN (SELECT value FROM json_each(%(keys)s)) AND NOT (serial_key = '')
    AND state IN ('scheduled', 'queued', 'failed') AND state = 'queued' AND lane = '~'
RETURNING id
