-- invariant: A1
-- meaning: a closed attempt says when and how it ended: a loss its cause, a failure its class
-- about: attempt
SELECT a.id
FROM django_jobs_attempt a
WHERE (a.outcome IS NULL AND (a.finished_at IS NOT NULL OR a.loss_cause <> '' OR a.error_class <> ''))
    OR (a.outcome IS NOT NULL AND (a.finished_at IS NULL OR a.outcome NOT IN (
        'succeeded', 'failed', 'lost', 'released', 'snoozed', 'cancelled')))
    OR (a.outcome = 'lost' AND a.loss_cause NOT IN ('exit', 'silent', 'expired', 'ended'))
    OR (a.outcome <> 'lost' AND a.loss_cause <> '')
    OR (a.outcome = 'failed' AND (a.error_class NOT IN ('permanent', 'transient', 'unknown') OR a.error_type = ''))
    OR (a.exit_status IS NOT NULL AND a.loss_cause NOT IN ('exit', 'ended'))
