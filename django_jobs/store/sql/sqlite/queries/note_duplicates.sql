-- purpose: keep that live keys answered an enqueue, and find out which owners of dead letters must be told
-- guard: few rows of that job in the last hour, or its owner was not told for a day; no row of anybody is locked
-- index: django_jobs_duplicate_newest
WITH given AS MATERIALIZED (
    SELECT json_extract(r.value, '$[0]') AS id, json_extract(r.value, '$[1]') AS job_id, json_extract(r.value, '$[2]') AS dead
    FROM json_each(%(rows)s) r
),
looked AS MATERIALIZED (
    SELECT g.id, g.job_id, (
            SELECT d.created_at FROM django_jobs_duplicateenqueue d
            WHERE d.job_id = g.job_id ORDER BY d.id DESC LIMIT 1 OFFSET %(before)s) AS nth_newest,
        g.dead AND NOT EXISTS (
            SELECT 1 FROM django_jobs_duplicateenqueue d
            WHERE d.job_id = g.job_id AND d.outcome = 'alerted' AND d.created_at > django_jobs_add(%(now)s, -86400)) AS must_tell
    FROM given g
)
INSERT INTO django_jobs_duplicateenqueue (id, job_id, outcome, created_at)
SELECT looked.id, looked.job_id, CASE WHEN looked.must_tell THEN 'alerted' ELSE 'duplicate' END, %(now)s
FROM looked
WHERE looked.must_tell OR looked.nth_newest IS NULL OR looked.nth_newest <= django_jobs_add(%(now)s, -3600)
RETURNING job_id, outcome
