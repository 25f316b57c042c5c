-- purpose: end an attempt without an error and run the job again later
-- guard: running under this attempt
-- index: primary key
UPDATE django_jobs_job
SET state = 'scheduled', lane = '', revision = revision + 1, available_at = django_jobs_add(%(now)s, %(delay)s),
    waiting_since = CASE WHEN %(for_evidence)s THEN COALESCE(waiting_since, %(now)s) END,
    attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
    unknown_count = %(unknown_count)s, transient_count = %(transient_count)s, free_count = %(free_count)s,
    lost_count = %(lost_count)s, exit_lost_count = %(exit_lost_count)s, silent_lost_count = %(silent_lost_count)s,
    unchanged_count = %(unchanged_count)s, isolation = %(isolation)s
WHERE id = %(job_id)s AND state = 'running' AND attempt_id = %(attempt_id)s
RETURNING id, available_at, %(now)s AS finished_at
-- then
UPDATE django_jobs_attempt SET outcome = 'snoozed', finished_at = %(now)s, message = %(message)s
WHERE id = %(attempt_id)s
