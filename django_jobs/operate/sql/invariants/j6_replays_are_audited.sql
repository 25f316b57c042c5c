-- invariant: J6
-- meaning: a job has one generation more than replays in the audit, each of another generation and of the acknowledged plan
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN (
    SELECT job_id, COUNT(*) AS many, COUNT(DISTINCT from_generation) AS sources, MAX(from_generation) AS highest,
        SUM(CASE WHEN given_digest = '' OR given_digest <> plan_digest OR from_revision IS NULL THEN 1 ELSE 0 END) AS wrong
    FROM django_jobs_operatoraction WHERE action = 'replay' GROUP BY job_id
) a ON a.job_id = j.id
WHERE j.generation <> 1 + COALESCE(a.many, 0) OR a.sources <> a.many OR a.highest <> j.generation - 1 OR a.wrong > 0
