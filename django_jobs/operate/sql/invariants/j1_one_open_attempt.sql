-- invariant: J1
-- meaning: a running job has exactly one open attempt, the one that it names; any other job has none
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN django_jobs_attempt a ON a.job_id = j.id AND a.outcome IS NULL
WHERE (j.state = 'running' AND (
        a.id IS NULL OR j.attempt_id IS NULL OR a.id <> j.attempt_id OR a.number <> j.fence
        OR a.generation <> j.generation OR a.worker_id <> j.lease_owner OR a.worker_child <> j.lease_child))
    OR (j.state <> 'running' AND a.id IS NOT NULL)
