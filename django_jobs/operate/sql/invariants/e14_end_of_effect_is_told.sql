-- invariant: E14
-- meaning: an effect that succeeded or was given up says when and by whom; a given-up one was sent and says why
-- about: effect
SELECT e.id
FROM django_jobs_sideeffect e
WHERE (e.state IN ('succeeded', 'abandoned') AND (e.resolved_at IS NULL OR e.resolved_by = ''))
    OR (e.state NOT IN ('succeeded', 'abandoned') AND (e.resolved_at IS NOT NULL OR e.resolved_by <> ''))
    OR (e.state = 'abandoned' AND (
        e.review_reason = '' OR NOT EXISTS (SELECT 1 FROM django_jobs_send s WHERE s.effect_id = e.id)))
