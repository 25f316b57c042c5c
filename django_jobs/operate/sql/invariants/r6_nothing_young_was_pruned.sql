-- invariant: R6
-- meaning: a batch of pruning took no job that was enqueued after the time before which it had to be finished
-- about: row
SELECT t.id
FROM django_jobs_prunedstretch t
WHERE t.kind IN ('content', 'jobs') AND SECONDS_OF_ID(t.last_job_id) > SECONDS_OF(t.finished_before)
