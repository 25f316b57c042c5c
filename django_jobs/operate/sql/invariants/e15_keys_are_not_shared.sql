-- invariant: E15
-- meaning: no two effects share a key at one provider, and no two effects are one business act
-- about: effect
SELECT s.effect_id AS id
FROM django_jobs_send s
JOIN django_jobs_sideeffect e ON e.id = s.effect_id
JOIN (
    SELECT e.provider, s.provider_key
    FROM django_jobs_send s
    JOIN django_jobs_sideeffect e ON e.id = s.effect_id
    GROUP BY e.provider, s.provider_key
    HAVING COUNT(DISTINCT s.effect_id) > 1
) shared ON shared.provider = e.provider AND shared.provider_key = s.provider_key
UNION
SELECT e.id
FROM django_jobs_sideeffect e
JOIN (
    SELECT tenant, provider, business_key, name
    FROM django_jobs_sideeffect
    GROUP BY tenant, provider, business_key, name
    HAVING COUNT(*) > 1
) twice ON twice.tenant = e.tenant AND twice.provider = e.provider AND twice.business_key = e.business_key
    AND twice.name = e.name
