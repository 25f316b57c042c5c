-- invariant: O2
-- meaning: an event of a job carries the attempt that succeeded, or one that committed a step; none survives a failure
-- about: event
SELECT e.id
FROM django_jobs_outboxevent e
LEFT JOIN django_jobs_attempt a ON a.id = e.attempt_id
WHERE e.job_id IS NOT NULL
    AND (a.id IS NULL OR a.job_id <> e.job_id OR a.number <> e.fence OR (
        COALESCE(a.outcome, '') <> 'succeeded' AND NOT EXISTS (
            SELECT 1 FROM django_jobs_jobstep done WHERE done.job_id = e.job_id AND done.attempt_id = e.attempt_id)))
    AND NOT (a.id IS NULL AND EXISTS (
        SELECT 1 FROM django_jobs_prunedstretch t
        WHERE t.kind = 'jobs' AND t.last_job_id >= e.job_id AND t.first_job_id <= e.job_id))
