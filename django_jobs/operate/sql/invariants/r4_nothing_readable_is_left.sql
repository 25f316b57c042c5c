-- invariant: R4
-- meaning: of a job without content nothing can be read that it held: no text, no request, no answer, no digest
-- about: job
SELECT j.id
FROM django_jobs_job j
WHERE j.content_removed_at IS NOT NULL AND (j.payload_fingerprint <> '' OR j.error_fingerprint <> '')
UNION
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_attempt a ON a.job_id = j.id
WHERE j.content_removed_at IS NOT NULL AND (a.message <> '' OR a.traceback <> '' OR a.error_fingerprint <> '')
UNION
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_jobstep done ON done.job_id = j.id
WHERE j.content_removed_at IS NOT NULL AND done.result <> 'null'
UNION
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_sideeffect e ON e.job_id = j.id
LEFT JOIN django_jobs_send s ON s.effect_id = e.id
LEFT JOIN django_jobs_reconciliation r ON r.effect_id = e.id
WHERE j.content_removed_at IS NOT NULL AND (
    e.request <> '' OR e.request_digest <> '' OR e.review_reason NOT IN ('', 'removed')
    OR (s.id IS NOT NULL AND s.request_digest <> '')
    -- evidence may still come in afterwards
    OR (s.finished_at <= j.content_removed_at AND s.reason <> '')
    OR (r.created_at <= j.content_removed_at AND r.evidence <> '{}'))
