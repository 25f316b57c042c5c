-- purpose: keep that live keys answered an enqueue, and find out which owners of dead letters must be told
-- guard: few rows of that job in the last hour, or its owner was not told for a day; no row of anybody is locked
-- index: django_jobs_duplicate_newest
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
looked AS MATERIALIZED (
    SELECT g.id, g.job_id, (
            SELECT d.created_at FROM django_jobs_duplicateenqueue d
            WHERE d.job_id = g.job_id ORDER BY d.id DESC LIMIT 1 OFFSET %(before)s::bigint) AS nth_newest,
        g.dead AND NOT EXISTS (
            SELECT 1 FROM django_jobs_duplicateenqueue d
            WHERE d.job_id = g.job_id AND d.outcome = 'alerted' AND d.created_at > clock.now - interval '1 day') AS must_tell
    FROM clock, unnest(%(ids)s::uuid[], %(job_ids)s::uuid[], %(dead)s::bool[]) AS g (id, job_id, dead)
)
INSERT INTO django_jobs_duplicateenqueue (id, job_id, outcome, created_at)
SELECT looked.id, looked.job_id, CASE WHEN looked.must_tell THEN 'alerted' ELSE 'duplicate' END, clock.now
FROM looked, clock
WHERE looked.must_tell OR looked.nth_newest IS NULL OR looked.nth_newest <= clock.now - interval '1 hour'
RETURNING job_id, outcome
