-- invariant: E20
-- meaning: what a human found out about an effect names the human and is audited, and only such an effect is resolved by an operator
-- about: effect
SELECT e.id
FROM django_jobs_sideeffect e
WHERE e.resolved_by = 'operator' AND NOT EXISTS (
    SELECT 1 FROM django_jobs_reconciliation r WHERE r.effect_id = e.id AND r.actor <> '' AND r.attempt_id IS NULL)
UNION
SELECT r.effect_id AS id
FROM django_jobs_reconciliation r
WHERE r.actor <> '' AND NOT EXISTS (
    SELECT 1 FROM django_jobs_operatoraction o
    WHERE o.effect_id = r.effect_id AND o.action = 'resolve' AND o.actor = r.actor)
