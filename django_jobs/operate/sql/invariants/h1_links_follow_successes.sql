-- invariant: H1
-- meaning: a link of a chain is enqueued exactly when the one before has succeeded, the first one from the beginning; none is missing
-- about: row
SELECT l.id
FROM django_jobs_chainlink l
LEFT JOIN django_jobs_chainlink former ON former.chain_id = l.chain_id AND former.position = l.position - 1
LEFT JOIN django_jobs_job j ON j.id = former.job_id
WHERE (l.position = 1 AND l.job_id IS NULL)
    OR (l.position > 1 AND former.id IS NULL)
    OR (l.position > 1 AND l.job_id IS NOT NULL AND (former.job_id IS NULL OR j.state <> 'succeeded'))
    OR (l.position > 1 AND l.job_id IS NULL AND j.state = 'succeeded')
UNION
SELECT c.id
FROM django_jobs_chain c
WHERE c.length <> (SELECT COUNT(*) FROM django_jobs_chainlink l WHERE l.chain_id = c.id)
UNION
SELECT l.id
FROM django_jobs_chainlink l
LEFT JOIN django_jobs_chain c ON c.id = l.chain_id
WHERE c.id IS NULL
