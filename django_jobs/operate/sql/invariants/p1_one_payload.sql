-- invariant: P1
-- meaning: every job has exactly one payload, and none once its content was removed
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN (SELECT job_id, COUNT(*) AS many FROM django_jobs_jobpayload GROUP BY job_id) p ON p.job_id = j.id
WHERE COALESCE(p.many, 0) <> CASE WHEN j.content_removed_at IS NULL THEN 1 ELSE 0 END
