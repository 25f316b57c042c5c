-- purpose: check the ownership for a completion; the transaction already holds the only write lock
-- guard: running under this attempt
-- index: primary key
SELECT j.id FROM django_jobs_job j
WHERE j.id = %(job_id)s AND j.state = 'running' AND j.attempt_id = %(attempt_id)s
