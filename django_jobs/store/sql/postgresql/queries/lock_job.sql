-- purpose: hold the job row for a completion, and bound how long a vanished host can hold it
-- guard: running under this attempt
-- index: primary key
SELECT j.id, set_config('idle_in_transaction_session_timeout', %(idle)s::text, true) AS idle
FROM django_jobs_job j
WHERE j.id = %(job_id)s::uuid AND j.state = 'running' AND j.attempt_id = %(attempt_id)s::uuid
FOR NO KEY UPDATE
