-- purpose: record the success of an attempt
-- guard: running under this attempt; no effect that it owns or asked for is open, or rejected though required
-- index: primary key
UPDATE django_jobs_job
SET state = 'succeeded', revision = revision + 1, finished_at = %(now)s,
    attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL,
    lost_count = 0, exit_lost_count = 0, silent_lost_count = 0, isolation = '', waiting_since = NULL
WHERE id = %(job_id)s AND state = 'running' AND attempt_id = %(attempt_id)s
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = django_jobs_job.id
            AND (e.state IN ('planned', 'in_flight', 'ambiguous') OR (e.state = 'rejected' AND e.required)))
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_effectstake k
        JOIN django_jobs_sideeffect e ON e.id = k.effect_id
        WHERE k.job_id = django_jobs_job.id AND e.job_id <> django_jobs_job.id
            AND (k.attempt_id = %(attempt_id)s OR (k.owned AND e.state <> 'succeeded'))
            AND NOT (e.state = 'rejected' AND NOT k.required)
            AND NOT (e.state = 'succeeded' AND EXISTS (
                SELECT 1 FROM django_jobs_effectadoption d WHERE d.effect_id = e.id AND d.job_id = k.job_id)))
RETURNING id, finished_at
-- then
UPDATE django_jobs_attempt
SET outcome = 'succeeded', finished_at = %(now)s, over_budget = %(now)s > django_jobs_add(started_at, %(budget)s)
WHERE id = %(attempt_id)s
-- then
UPDATE django_jobs_jobpayload SET result = %(result)s WHERE job_id = %(job_id)s AND %(result)s IS NOT NULL
