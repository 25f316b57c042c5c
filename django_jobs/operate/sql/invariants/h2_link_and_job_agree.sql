-- invariant: H2
-- meaning: the job of a link knows its chain and its place, exists or was pruned, and stands for no other link; its call is kept no longer
-- about: row
SELECT l.id
FROM django_jobs_chainlink l
LEFT JOIN django_jobs_job j ON j.id = l.job_id
LEFT JOIN django_jobs_jobpayload p ON p.job_id = j.id
WHERE l.job_id IS NOT NULL AND (
    l.call <> ''
    OR (j.id IS NOT NULL AND (p.chain_id IS NULL OR p.chain_id <> l.chain_id OR p.chain_position <> l.position))
    OR (j.id IS NULL AND NOT EXISTS (
        SELECT 1 FROM django_jobs_prunedstretch t
        WHERE t.kind = 'jobs' AND t.last_job_id >= l.job_id AND t.first_job_id <= l.job_id)))
UNION
SELECT p.job_id
FROM django_jobs_jobpayload p
LEFT JOIN django_jobs_chainlink l ON l.chain_id = p.chain_id AND l.position = p.chain_position
WHERE p.chain_id IS NOT NULL AND (l.job_id IS NULL OR l.job_id <> p.job_id)
