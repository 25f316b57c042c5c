-- purpose: take a job back from a holder that is proved gone
-- guard: running under this attempt, and the proof still holds
-- index: primary key
UPDATE django_jobs_job
SET state = CASE WHEN %(dead_reason)s <> '' THEN 'dead_lettered' WHEN %(delay)s <= 1 THEN 'queued' ELSE 'failed' END,
    lane = CASE WHEN %(dead_reason)s = '' AND %(delay)s <= 1 THEN resource ELSE '' END,
    revision = revision + 1,
    dead_at = CASE WHEN %(dead_reason)s <> '' THEN %(now)s END, dead_reason = %(dead_reason)s,
    available_at = CASE WHEN %(dead_reason)s <> '' THEN available_at
        WHEN %(delay)s = 0 THEN MIN(available_at, %(now)s) ELSE django_jobs_add(%(now)s, %(delay)s) END,
    attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
    unknown_count = %(unknown_count)s, transient_count = %(transient_count)s, free_count = %(free_count)s,
    lost_count = %(lost_count)s, exit_lost_count = %(exit_lost_count)s, silent_lost_count = %(silent_lost_count)s,
    unchanged_count = %(unchanged_count)s, isolation = %(isolation)s
WHERE id = %(job_id)s AND state = 'running' AND attempt_id = %(attempt_id)s
    AND CASE %(cause)s
        WHEN 'silent' THEN NOT EXISTS (
            SELECT 1 FROM django_jobs_worker w
            WHERE w.id = django_jobs_job.lease_owner AND w.stopped_at IS NULL
                AND w.heartbeat_at > django_jobs_add(%(now)s, -%(silent_after)s))
        WHEN 'expired' THEN lease_expires_at < django_jobs_add(%(now)s, -%(expired_patience)s)
        ELSE 1 END
RETURNING id, state, available_at, %(now)s AS finished_at
-- then
UPDATE django_jobs_attempt
SET outcome = 'lost', finished_at = %(now)s, loss_cause = %(cause)s, exit_status = %(exit_status)s, message = %(message)s
WHERE id = %(attempt_id)s AND outcome IS NULL
