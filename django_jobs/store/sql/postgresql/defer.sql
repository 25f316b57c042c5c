-- purpose: set aside queued jobs of kinds that nobody may or can run now, so that no claim walks over them
-- guard: state 'queued', of a kind that is not runnable; at most 2,000 entries per queue are looked at, held rows are skipped
-- index: django_jobs_job_ready, django_jobs_job_watched
WITH aside AS MATERIALIZED (
    SELECT found.id
    FROM unnest(%(queues)s::text[], %(lanes)s::text[]) AS q(queue_name, lane)
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM (
            (SELECT l.id FROM django_jobs_job l
            WHERE l.state = 'queued' AND l.isolation = '' AND l.queue_name = q.queue_name AND l.lane = q.lane
            ORDER BY l.priority DESC, l.available_at, l.id LIMIT 2000)
            UNION ALL
            (SELECT l.id FROM django_jobs_job l
            WHERE l.state = 'queued' AND l.isolation <> '' AND l.isolation > '' AND l.queue_name = q.queue_name AND l.lane = q.lane
            LIMIT 2000)
        ) AS seen
        JOIN django_jobs_job j ON j.id = seen.id
        WHERE j.state = 'queued'
            AND j.job_type || ' ' || j.payload_version <> ALL(%(runnable)s::text[])
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ) AS found
)
UPDATE django_jobs_job j
SET state = 'scheduled', revision = j.revision + 1, lane = '!' || j.job_type || ' ' || j.payload_version
FROM aside WHERE j.id = aside.id
RETURNING j.id, j.job_type || ' ' || j.payload_version AS kind
