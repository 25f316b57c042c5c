-- purpose: lease one job that can start now, open its attempt, and hand over all that is needed to run it
-- guard: state 'queued', due, still useful, of a known type and version; one writer at a time, so nothing is skipped
-- index: django_jobs_job_ready (django_jobs_job_watched for jobs that must run alone)
UPDATE django_jobs_job
SET state = 'running', revision = revision + 1, fence = fence + 1, attempt_id = %(attempt_id)s,
    lease_owner = %(worker_id)s, lease_child = %(worker_child)s,
    lease_expires_at = django_jobs_add(%(now)s, (
        SELECT json_extract(k.value, '$.lease_seconds') FROM json_each(%(known)s) k
        WHERE json_extract(k.value, '$.job_type') = django_jobs_job.job_type
            AND json_extract(k.value, '$.payload_version') = django_jobs_job.payload_version)),
    code_version = (
        SELECT json_extract(k.value, '$.code_version') FROM json_each(%(known)s) k
        WHERE json_extract(k.value, '$.job_type') = django_jobs_job.job_type
            AND json_extract(k.value, '$.payload_version') = django_jobs_job.payload_version),
    progress = NULL, progress_total = NULL
WHERE id = CASE WHEN %(suspects)s > 0 THEN (
        SELECT j.id FROM django_jobs_job j
        WHERE j.state = 'queued' AND NOT (j.isolation = '') AND j.lane IN (SELECT value FROM json_each(%(lanes)s))
            AND (j.isolation = 'child' OR %(alone)s = 'worker')
            AND j.queue_name IN (SELECT value FROM json_each(%(queues)s))
            AND j.available_at <= %(now)s AND (j.useful_until IS NULL OR j.useful_until > %(now)s)
            AND EXISTS (
            SELECT 1 FROM json_each(%(known)s) k
            WHERE json_extract(k.value, '$.job_type') = j.job_type
                AND json_extract(k.value, '$.payload_version') = j.payload_version)
        ORDER BY j.available_at, j.id LIMIT 1)
    ELSE (
        SELECT j.id FROM django_jobs_job j
        WHERE j.state = 'queued' AND j.isolation = '' AND j.lane IN (SELECT value FROM json_each(%(lanes)s))
            AND j.queue_name IN (SELECT value FROM json_each(%(queues)s))
            AND j.available_at <= %(now)s AND (j.useful_until IS NULL OR j.useful_until > %(now)s)
            AND EXISTS (
            SELECT 1 FROM json_each(%(known)s) k
            WHERE json_extract(k.value, '$.job_type') = j.job_type
                AND json_extract(k.value, '$.payload_version') = j.payload_version)
        ORDER BY CASE WHEN %(oldest)s > 0 THEN j.available_at END, j.priority DESC, j.available_at, j.id LIMIT 1)
    END
RETURNING id
-- then
INSERT INTO django_jobs_attempt (
    id, job_id, number, generation, worker_id, worker_child, worker_name, code_version, alone, started_at,
    lease_seconds, error_class, error_type, error_fingerprint, message, traceback, loss_cause, over_budget,
    refused_count, refused_operation)
SELECT attempt_id, id, fence, generation, %(worker_id)s, %(worker_child)s, %(worker_name)s, code_version, %(alone)s,
    %(now)s, (
        SELECT json_extract(k.value, '$.lease_seconds') FROM json_each(%(known)s) k
        WHERE json_extract(k.value, '$.job_type') = django_jobs_job.job_type
            AND json_extract(k.value, '$.payload_version') = django_jobs_job.payload_version),
    '', '', '', '', '', '', 0, 0, ''
FROM django_jobs_job WHERE id = %(row_id)s AND attempt_id = %(attempt_id)s
-- then
SELECT j.*, p.arguments, p.key_scope, p.key, p.chain_id, p.chain_position, p.context, a.lease_seconds, a.started_at AS claimed_at
FROM django_jobs_job j
JOIN django_jobs_attempt a ON a.id = j.attempt_id
LEFT JOIN django_jobs_jobpayload p ON p.job_id = j.id
WHERE j.id = %(row_id)s
