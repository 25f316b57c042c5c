-- invariant: R5
-- meaning: a record of pruning names at least one row and first and last in order, and covers what it emptied
-- about: row
SELECT t.id
FROM django_jobs_prunedstretch t
WHERE t.kind NOT IN ('content', 'jobs', 'keys', 'events', 'messages', 'quarantine', 'replays') OR t."rows" < 1 OR t.first_job_id > t.last_job_id
    OR t.finished_before > t.created_at
UNION
SELECT t.id
FROM django_jobs_prunedstretch t
JOIN django_jobs_job j ON j.content_removed_at = t.created_at AND j.id >= t.first_job_id AND j.id <= t.last_job_id
WHERE t.kind = 'content'
GROUP BY t.id, t."rows"
HAVING COUNT(*) > t."rows"
