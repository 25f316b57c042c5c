-- invariant: J12
-- meaning: a discarded dead letter was discarded by a decision in the audit
-- about: job
SELECT j.id
FROM django_jobs_job j
WHERE j.resolution = 'discarded' AND NOT EXISTS (
    SELECT 1 FROM django_jobs_operatoraction a WHERE a.job_id = j.id AND a.action = 'discard')
