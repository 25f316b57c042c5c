-- invariant: E9
-- meaning: "not applied" was concluded only from a final answer, given when every send it covers had to be visible
-- about: effect
SELECT s.effect_id AS id
FROM django_jobs_send s
JOIN django_jobs_sideeffect e ON e.id = s.effect_id
WHERE s.outcome = 'not_applied' AND NOT EXISTS (
    SELECT 1 FROM django_jobs_reconciliation r
    WHERE r.effect_id = s.effect_id AND r.is_final AND r.verdict IN ('not_found', 'failed')
        AND r.created_at >= s.settled_at)
UNION
SELECT r.effect_id AS id
FROM django_jobs_reconciliation r
JOIN django_jobs_send s ON s.effect_id = r.effect_id
WHERE r.is_final AND r.verdict = 'not_found' AND s.started_at < r.created_at AND s.settled_at > r.created_at
    AND (s.outcome IS NULL OR s.outcome IN ('unknown', 'not_applied'))
