-- purpose: let ready jobs that have arrived stand behind the one that has the turn of their serial key
-- guard: ready and just arrived, of keys whose turns the caller holds and has given
-- index: django_jobs_job_serial
UPDATE django_jobs_job j
SET lane = '~~', revision = j.revision + 1
WHERE j.serial_key = ANY(%(keys)s::text[]) AND j.serial_key <> '' AND j.state IN ('scheduled', 'queued', 'failed')
    AND j.state = 'queued' AND j.lane = '~'
RETURNING j.id
