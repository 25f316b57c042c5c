-- invariant: L1
-- meaning: no running job outlives its lease by more than the patience
-- about: job
SELECT j.id
FROM django_jobs_job j
WHERE j.state = 'running' AND SECONDS_UNTIL_NOW(j.lease_expires_at) > PATIENCE
