-- purpose: settle a dead letter for good: nothing of it runs again; if it was to take an effect back, that is void
-- guard: an unresolved dead letter at the revision that was acknowledged, nothing of it taken back
-- index: primary key; django_jobs_compensation_of, django_jobs_compensation_job
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
discarded AS (
    UPDATE django_jobs_job j
    SET resolution = 'discarded', finished_at = clock.now, revision = j.revision + 1
    FROM clock
    WHERE j.id = %(job_id)s::uuid AND j.state = 'dead_lettered' AND j.resolution IS NULL
        AND j.revision = %(revision)s::bigint
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_compensation c WHERE c.original_job_id = j.id AND c.outcome IN ('open', 'succeeded'))
    RETURNING j.id, j.finished_at
),
void AS (
    UPDATE django_jobs_compensation c SET outcome = 'void', closed_at = discarded.finished_at
    FROM discarded WHERE c.job_id = discarded.id AND c.outcome = 'open'
)
SELECT * FROM discarded
