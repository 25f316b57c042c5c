-- purpose: begin a new generation of a dead letter: its identity, key, attempts and effects stay, its counters begin anew
-- guard: an unresolved dead letter at the revision that was acknowledged, with its content, and nothing of it taken back
-- index: primary key; django_jobs_compensation_of
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT clock.now,
        CASE WHEN %(run_after)s::timestamptz > clock.now THEN %(run_after)s::timestamptz
            WHEN %(delay)s::interval > interval '0' THEN clock.now + %(delay)s::interval
            ELSE clock.now END AS available_at
    FROM clock
),
replayed AS (
    UPDATE django_jobs_job j
    SET state = CASE WHEN due.available_at > due.now THEN 'scheduled' ELSE 'queued' END,
        revision = j.revision + 1, generation = j.generation + 1,
        lane = CASE WHEN due.available_at > due.now THEN '' WHEN j.serial_key <> '' THEN '~' ELSE j.resource END,
        generation_started_at = due.available_at, available_at = due.available_at, waiting_since = NULL,
        unknown_count = 0, transient_count = 0, free_count = 0, unchanged_count = 0,
        lost_count = 0, exit_lost_count = 0, silent_lost_count = 0, isolation = '',
        extra_attempts = %(extra_attempts)s::int, dead_reason = '', dead_at = NULL,
        useful_until = CASE WHEN %(useful_for)s::interval IS NULL THEN j.useful_until
            ELSE due.available_at + %(useful_for)s::interval END
    FROM due
    WHERE j.id = %(job_id)s::uuid AND j.state = 'dead_lettered' AND j.resolution IS NULL
        AND j.revision = %(revision)s::bigint AND j.content_removed_at IS NULL
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_compensation c WHERE c.original_job_id = j.id AND c.outcome IN ('open', 'succeeded'))
    RETURNING j.id, j.state, j.generation, j.available_at, j.queue_name, due.now
),
woken AS MATERIALIZED (
    SELECT pg_notify('django_jobs_wake', c.queue_name)
    FROM replayed JOIN django_jobs_queuecontrol c ON c.queue_name = replayed.queue_name
    WHERE %(notify)s::boolean AND replayed.state = 'queued' AND c.idle_until > replayed.now
)
SELECT replayed.*, EXISTS (SELECT 1 FROM woken) AS woken FROM replayed
