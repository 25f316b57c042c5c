-- invariant: J9
-- meaning: a job's state is known, and lease and end are set exactly when the state has them
-- about: job
SELECT j.id
FROM django_jobs_job j
WHERE j.state NOT IN ('scheduled', 'queued', 'running', 'failed', 'succeeded', 'dead_lettered', 'cancelled')
    OR (j.state = 'running' AND (
        j.attempt_id IS NULL OR j.lease_owner IS NULL OR j.lease_child IS NULL OR j.lease_expires_at IS NULL))
    OR (j.state <> 'running' AND (
        j.attempt_id IS NOT NULL OR j.lease_owner IS NOT NULL OR j.lease_child IS NOT NULL
        OR j.lease_expires_at IS NOT NULL))
    OR ((j.state IN ('succeeded', 'cancelled') OR j.resolution IS NOT NULL) AND j.finished_at IS NULL)
    OR (j.state NOT IN ('succeeded', 'cancelled') AND j.resolution IS NULL AND j.finished_at IS NOT NULL)
    OR (j.resolution IS NOT NULL AND j.resolution NOT IN ('discarded', 'compensated'))
