-- purpose: keep that a live key answered an enqueue, and find out whether the owner of a dead letter must be told
-- guard: few rows of this job in the last hour, or the owner was not told for a day; no row of anybody is locked
-- index: django_jobs_duplicate_newest
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
looked AS MATERIALIZED (
    SELECT (
            SELECT d.created_at FROM django_jobs_duplicateenqueue d
            WHERE d.job_id = %(job_id)s::uuid ORDER BY d.id DESC LIMIT 1 OFFSET %(before)s::bigint) AS nth_newest,
        %(dead)s::bool AND NOT EXISTS (
            SELECT 1 FROM django_jobs_duplicateenqueue d
            WHERE d.job_id = %(job_id)s::uuid AND d.outcome = 'alerted' AND d.created_at > clock.now - interval '1 day') AS must_tell
    FROM clock
)
INSERT INTO django_jobs_duplicateenqueue (id, job_id, outcome, created_at)
SELECT %(id)s::uuid, %(job_id)s::uuid, CASE WHEN looked.must_tell THEN 'alerted' ELSE 'duplicate' END, clock.now
FROM looked, clock
WHERE looked.must_tell OR looked.nth_newest IS NULL OR looked.nth_newest <= clock.now - interval '1 hour'
RETURNING outcome
