-- purpose: record a failed attempt and schedule the next one; one that is due within a second is queued at once
-- guard: running under this attempt
-- index: primary key
UPDATE django_jobs_job
SET state = CASE WHEN %(delay)s <= 1 THEN 'queued' ELSE 'failed' END, lane = CASE WHEN %(delay)s <= 1 THEN resource ELSE '' END,
    revision = revision + 1, available_at = django_jobs_add(%(now)s, %(delay)s), waiting_since = NULL,
    attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
    unknown_count = %(unknown_count)s, transient_count = %(transient_count)s, free_count = %(free_count)s,
    lost_count = %(lost_count)s, exit_lost_count = %(exit_lost_count)s, silent_lost_count = %(silent_lost_count)s,
    unchanged_count = %(unchanged_count)s, isolation = %(isolation)s,
    error_class = %(error_class)s, error_type = %(error_type)s, error_fingerprint = %(error_fingerprint)s
WHERE id = %(job_id)s AND state = 'running' AND attempt_id = %(attempt_id)s
RETURNING id, state, available_at, %(now)s AS finished_at
-- then
UPDATE django_jobs_attempt
SET outcome = 'failed', finished_at = %(now)s, error_class = %(error_class)s, error_type = %(error_type)s, error_fingerprint = %(error_fingerprint)s,
    message = %(message)s, traceback = %(traceback)s, over_budget = %(now)s > django_jobs_add(started_at, %(budget)s)
WHERE id = %(attempt_id)s
-- then
UPDATE django_jobs_jobpayload SET error_text = %(message)s WHERE job_id = %(job_id)s
