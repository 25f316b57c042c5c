-- invariant: E8
-- meaning: a send carries the number of an attempt of its job that was open when it was written
-- about: send
SELECT s.id
FROM django_jobs_send s
LEFT JOIN django_jobs_attempt a ON a.id = s.attempt_id
WHERE a.id IS NULL OR a.job_id <> s.job_id OR a.number <> s.fence
    OR s.started_at < a.started_at OR s.started_at > COALESCE(a.finished_at, s.started_at)
