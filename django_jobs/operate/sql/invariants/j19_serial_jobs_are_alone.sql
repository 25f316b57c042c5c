-- invariant: J19
-- meaning: of a serial key at most one job runs or may be claimed, and it has the turn
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN django_jobs_serialturn t ON t.key = j.serial_key AND t.job_id = j.id
WHERE j.serial_key <> '' AND t.id IS NULL
    AND (j.state = 'running' OR (j.state = 'queued' AND j.lane NOT IN ('~', '~~')))
