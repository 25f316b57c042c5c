-- purpose: end jobs that could not start while they were useful, and jobs of a kind that nobody has known for the grace
-- guard: waiting, and no longer useful; or set aside and due for the grace, while the judge lived and nobody knew the kind
-- index: django_jobs_job_watched, django_jobs_job_due
UPDATE django_jobs_job
SET state = 'dead_lettered', revision = revision + 1, dead_at = %(now)s, lane = '',
    dead_reason = CASE WHEN useful_until <= %(now)s THEN 'expired'
        WHEN EXISTS (
            SELECT 1 FROM django_jobs_worker w, json_each(w.job_types) t
            WHERE w.heartbeat_at > django_jobs_add(%(now)s, -%(grace)s) AND t.value = django_jobs_job.job_type)
        THEN 'version' ELSE 'unknown_type' END
WHERE id IN (
    SELECT id FROM (
        SELECT j.id FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'queued', 'failed') AND j.isolation IN ('', 'child', 'worker')
            AND j.useful_until IS NOT NULL AND j.useful_until <= %(now)s
        LIMIT %(limit)s)
    UNION
    SELECT id FROM (
        SELECT j.id FROM django_jobs_job j
        WHERE j.state IN ('scheduled', 'failed') AND j.available_at <= django_jobs_add(%(now)s, -%(grace)s)
            AND (j.queue_name, j.lane) IN (
                SELECT q.value, l.value FROM json_each(%(queues)s) q JOIN json_each(%(lanes)s) l ON l.key = q.key)
            AND EXISTS (
                SELECT 1 FROM django_jobs_worker w
                WHERE w.id = %(judge)s AND w.stopped_at IS NULL AND w.started_at <= django_jobs_add(%(now)s, -%(grace)s))
            AND NOT EXISTS (
                SELECT 1 FROM django_jobs_worker w, json_each(w.kinds) k
                WHERE w.heartbeat_at > django_jobs_add(%(now)s, -%(grace)s) AND k.value = substr(j.lane, 2))
            AND NOT EXISTS (
                SELECT 1 FROM django_jobs_pause p
                WHERE p.kind = 'type' AND p.name = j.job_type AND (p.paused_until IS NULL OR p.paused_until > %(now)s))
        LIMIT %(limit)s))
RETURNING id, job_type, queue_name, priority, owner, dead_reason
