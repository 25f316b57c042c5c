-- invariant: E7
-- meaning: a repeated send is harmless by nature, covered by the same live key, accepted by policy, or all earlier ones were not applied
-- about: effect
SELECT n.effect_id AS id
FROM django_jobs_send n
JOIN django_jobs_sideeffect e ON e.id = n.effect_id
JOIN django_jobs_send o ON o.effect_id = n.effect_id AND o.number < n.number
JOIN (
    SELECT effect_id, epoch, MIN(started_at) AS first_at FROM django_jobs_send GROUP BY effect_id, epoch
) f ON f.effect_id = n.effect_id AND f.epoch = n.epoch
WHERE e.dedupe <> 'natural' AND e.on_ambiguous <> 'resend'
    AND COALESCE(o.outcome, 'open') NOT IN ('rejected', 'not_applied')
    AND NOT (
        e.dedupe = 'key' AND o.epoch = n.epoch
        AND SECONDS_BETWEEN(f.first_at, n.deadline_at) < COALESCE(e.key_lifetime_seconds, 0))
