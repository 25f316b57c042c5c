-- purpose: the newest dead letters that wait for a human, grouped by job type and error
-- guard: none; reads
-- index: django_jobs_job_held, from its newest end
WITH newest AS (
  SELECT id, job_type, error_fingerprint, dead_at
  FROM django_jobs_job
  WHERE state = 'dead_lettered' AND resolution IS NULL
  ORDER BY id DESC
  LIMIT %(window)s
)
SELECT
  job_type,
  error_fingerprint,
  COUNT(*) AS jobs,
  SUM(COUNT(*)) OVER () AS total,
  COUNT(*) FILTER (WHERE dead_at >= %(hour)s) AS hour,
  COUNT(*) FILTER (WHERE dead_at >= %(day)s) AS day,
  COUNT(*) FILTER (WHERE dead_at >= %(week)s) AS week,
  MIN(dead_at) AS created_at,
  MAX(dead_at) AS dead_at,
  MAX(id) AS id
FROM newest
GROUP BY job_type, error_fingerprint
ORDER BY COUNT(*) DESC, MAX(dead_at) DESC
LIMIT %(most)s
