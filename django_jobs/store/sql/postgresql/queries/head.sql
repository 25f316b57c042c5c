-- purpose: see what stands at the given places of queues: how many, kinds that the asker cannot run, and where its own begin
-- guard: none; at most 2,000 entries per place are looked at; locks nothing
-- index: django_jobs_job_ready, django_jobs_job_watched
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
seen AS MATERIALIZED (
    SELECT a.place AS look, a.queue_name, a.lane, found.*,
        found.job_type || ' ' || found.payload_version = ANY(%(mine)s::text[]) AS is_mine,
        row_number() OVER (PARTITION BY a.place ORDER BY found.priority DESC, found.available_at, found.id) AS nth
    FROM unnest(
        %(after_queues)s::text[], %(after_lanes)s::text[], %(after_priorities)s::int[], %(after_times)s::timestamptz[], %(after_ids)s::uuid[]
    ) WITH ORDINALITY AS a(queue_name, lane, priority, available_at, id, place)
    CROSS JOIN LATERAL (
        SELECT l.id, l.priority, l.available_at, l.job_type, l.payload_version, l.useful_until FROM (
            (SELECT l.* FROM django_jobs_job l
            WHERE l.state = 'queued' AND l.isolation = '' AND l.queue_name = a.queue_name AND l.lane = a.lane
                AND l.priority = a.priority AND (l.available_at, l.id) > (a.available_at, a.id)
            ORDER BY l.available_at, l.id LIMIT 2000)
            UNION ALL
            (SELECT l.* FROM django_jobs_job l
            WHERE l.state = 'queued' AND l.isolation = '' AND l.queue_name = a.queue_name AND l.lane = a.lane
                AND l.priority < a.priority
            ORDER BY l.priority DESC, l.available_at, l.id LIMIT 2000)
        ) AS l
        ORDER BY l.priority DESC, l.available_at, l.id
        LIMIT 2000
    ) AS found
),
looks AS (
    SELECT s.look, s.queue_name, s.lane, count(*) AS many, min(s.nth) FILTER (WHERE s.is_mine) AS first_mine,
        count(*) FILTER (WHERE s.useful_until <= clock.now) AS late,
        to_json(array_remove(array_agg(DISTINCT CASE WHEN NOT s.is_mine THEN s.job_type || ' ' || s.payload_version END), NULL))::text
            AS strange
    FROM seen s, clock
    GROUP BY s.look, s.queue_name, s.lane
),
alone AS (
    SELECT to_json(array_agg(DISTINCT j.job_type || ' ' || j.payload_version))::text AS strange
    FROM django_jobs_job j
    WHERE j.state = 'queued' AND j.isolation <> '' AND j.isolation > '' AND j.lane = ANY(%(after_lanes)s::text[])
        AND j.queue_name = ANY(%(after_queues)s::text[])
        AND j.job_type || ' ' || j.payload_version <> ALL(%(mine)s::text[])
)
SELECT l.look, l.queue_name, l.lane, l.many, l.first_mine, l.late, l.strange, s.priority, s.available_at, s.id
FROM looks l
LEFT JOIN seen s ON s.look = l.look AND s.nth = COALESCE(l.first_mine - 1, l.many)
UNION ALL
SELECT NULL, '', '', 0, NULL, 0, alone.strange, NULL, NULL, NULL FROM alone WHERE alone.strange IS NOT NULL
