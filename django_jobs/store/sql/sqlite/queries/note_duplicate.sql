-- purpose: keep that a live key answered an enqueue, and find out whether the owner of a dead letter must be told
-- guard: few rows of this job in the last hour, or the owner was not told for a day; no row of anybody is locked
-- index: django_jobs_duplicate_newest
WITH looked AS MATERIALIZED (
    SELECT (
            SELECT d.created_at FROM django_jobs_duplicateenqueue d
            WHERE d.job_id = %(job_id)s ORDER BY d.id DESC LIMIT 1 OFFSET %(before)s) AS nth_newest,
        %(dead)s AND NOT EXISTS (
            SELECT 1 FROM django_jobs_duplicateenqueue d
            WHERE d.job_id = %(job_id)s AND d.outcome = 'alerted' AND d.created_at > django_jobs_add(%(now)s, -86400)) AS must_tell
)
INSERT INTO django_jobs_duplicateenqueue (id, job_id, outcome, created_at)
SELECT %(id)s, %(job_id)s, CASE WHEN looked.must_tell THEN 'alerted' ELSE 'duplicate' END, %(now)s
FROM looked
WHERE looked.must_tell OR looked.nth_newest IS NULL OR looked.nth_newest <= django_jobs_add(%(now)s, -3600)
RETURNING outcome
