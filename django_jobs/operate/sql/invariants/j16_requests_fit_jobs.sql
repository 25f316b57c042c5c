-- invariant: J16
-- meaning: a request to cancel a running job belongs to a job and to a generation that it has had, and is audited
-- about: row
SELECT c.id
FROM django_jobs_cancelrequest c
LEFT JOIN django_jobs_job j ON j.id = c.job_id
LEFT JOIN django_jobs_operatoraction o ON o.id = c.action_id AND o.job_id = c.job_id AND o.action = 'cancel'
WHERE j.id IS NULL OR c.generation < 1 OR c.generation > j.generation OR o.id IS NULL
