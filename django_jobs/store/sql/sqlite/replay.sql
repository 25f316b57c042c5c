-- purpose: begin a new generation of a dead letter: its identity, key, attempts and effects stay, its counters begin anew
-- guard: an unresolved dead letter at the revision that was acknowledged, with its content, and nothing of it taken back
-- index: primary key; django_jobs_compensation_of
UPDATE django_jobs_job
SET state = CASE WHEN %(run_after)s > %(now)s OR %(delay)s > 0 THEN 'scheduled' ELSE 'queued' END,
    revision = revision + 1, generation = generation + 1,
    lane = CASE WHEN %(run_after)s > %(now)s OR %(delay)s > 0 THEN '' WHEN serial_key <> '' THEN '~' ELSE resource END,
    generation_started_at = CASE WHEN %(run_after)s > %(now)s THEN %(run_after)s
        WHEN %(delay)s > 0 THEN django_jobs_add(%(now)s, %(delay)s) ELSE %(now)s END,
    available_at = CASE WHEN %(run_after)s > %(now)s THEN %(run_after)s
        WHEN %(delay)s > 0 THEN django_jobs_add(%(now)s, %(delay)s) ELSE %(now)s END,
    waiting_since = NULL,
    unknown_count = 0, transient_count = 0, free_count = 0, unchanged_count = 0,
    lost_count = 0, exit_lost_count = 0, silent_lost_count = 0, isolation = '',
    extra_attempts = %(extra_attempts)s, dead_reason = '', dead_at = NULL,
    useful_until = CASE WHEN %(useful_for)s IS NULL THEN useful_until
        ELSE django_jobs_add(CASE WHEN %(run_after)s > %(now)s THEN %(run_after)s
            WHEN %(delay)s > 0 THEN django_jobs_add(%(now)s, %(delay)s) ELSE %(now)s END, %(useful_for)s) END
WHERE id = %(job_id)s AND state = 'dead_lettered' AND resolution IS NULL
    AND revision = %(revision)s AND content_removed_at IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_compensation c
        WHERE c.original_job_id = django_jobs_job.id AND c.outcome IN ('open', 'succeeded'))
RETURNING id, state, generation, available_at, queue_name
