-- purpose: find open batches of which no member waits or runs: to be closed, or their owner has not been told why not
-- guard: none; whoever closes one asks again under its lock
-- index: django_jobs_batch_open; django_jobs_job_batch
SELECT b.id FROM django_jobs_batch b
WHERE b.closed_at IS NULL AND (%(before)s IS NULL OR b.created_at < %(before)s)
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_job j
        WHERE j.batch_id = b.id AND j.finished_at IS NULL AND j.state <> 'dead_lettered')
    AND (b.told_at IS NULL OR b.on_dead = 'continue' OR NOT EXISTS (
        SELECT 1 FROM django_jobs_job j WHERE j.batch_id = b.id AND j.finished_at IS NULL))
ORDER BY b.id LIMIT %(limit)s
