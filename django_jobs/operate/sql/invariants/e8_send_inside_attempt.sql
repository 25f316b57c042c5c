-- invariant: E8
-- meaning: a send carries the number of an attempt of its job that was open when it was written, unless that was pruned
-- about: send
-- An effect that went over to another job keeps the sends of a job before it, which may be pruned earlier.
SELECT s.id
FROM django_jobs_send s
LEFT JOIN django_jobs_attempt a ON a.id = s.attempt_id
LEFT JOIN django_jobs_job j ON j.id = s.job_id
WHERE (a.id IS NOT NULL AND (
        a.job_id <> s.job_id OR a.number <> s.fence
        OR s.started_at < a.started_at OR s.started_at > COALESCE(a.finished_at, s.started_at)))
    OR (a.id IS NULL AND (j.id IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM django_jobs_prunedstretch t
        WHERE t.kind = 'jobs' AND t.last_job_id >= s.job_id AND t.first_job_id <= s.job_id)))
