-- invariant: R3
-- meaning: content that is gone was removed by a recorded batch, from finished jobs without an open effect
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN django_jobs_prunedstretch t
    ON t.kind = 'content' AND t.created_at = j.content_removed_at AND t.first_job_id <= j.id AND t.last_job_id >= j.id
WHERE j.content_removed_at IS NOT NULL AND (
    t.id IS NULL OR j.finished_at IS NULL OR j.finished_at > j.content_removed_at
    OR EXISTS (
        SELECT 1 FROM django_jobs_sideeffect e
        WHERE e.job_id = j.id AND (e.state IN ('planned', 'in_flight', 'ambiguous') OR e.needs_review)))
UNION
SELECT e.job_id
FROM django_jobs_sideeffect e
JOIN django_jobs_job j ON j.id = e.job_id
WHERE j.content_removed_at IS NULL AND (e.request = '' OR e.request_digest = '')
UNION
SELECT e.job_id
FROM django_jobs_send s
JOIN django_jobs_sideeffect e ON e.id = s.effect_id
JOIN django_jobs_job j ON j.id = e.job_id
WHERE s.request_digest = '' AND j.content_removed_at IS NULL AND NOT EXISTS (
    -- the effect went over to this job from one that had lost its content
    SELECT 1
    FROM django_jobs_send earlier
    LEFT JOIN django_jobs_job sender ON sender.id = earlier.job_id
    WHERE earlier.effect_id = s.effect_id AND earlier.request_digest = ''
        AND (sender.id IS NULL OR sender.content_removed_at IS NOT NULL))
UNION
SELECT j.id
FROM django_jobs_job j
WHERE j.content_removed_at IS NULL AND j.payload_fingerprint = ''
