-- invariant: E1
-- meaning: an effect's state is the join of all its sends and of what was found out about them
-- about: effect
SELECT e.id
FROM django_jobs_sideeffect e
LEFT JOIN (
    SELECT effect_id, COUNT(*) AS many,
        SUM(CASE WHEN outcome = 'confirmed' THEN 1 ELSE 0 END) AS confirmed,
        SUM(CASE WHEN outcome IS NULL THEN 1 ELSE 0 END) AS still_open,
        SUM(CASE WHEN outcome = 'unknown' THEN 1 ELSE 0 END) AS unknown
    FROM django_jobs_send GROUP BY effect_id
) s ON s.effect_id = e.id
LEFT JOIN (
    SELECT effect_id, COUNT(*) AS many FROM django_jobs_reconciliation WHERE verdict = 'succeeded' GROUP BY effect_id
) r ON r.effect_id = e.id
WHERE e.state <> CASE
    WHEN COALESCE(s.confirmed, 0) > 0 OR COALESCE(r.many, 0) > 0 THEN 'succeeded'
    WHEN e.state = 'abandoned' THEN 'abandoned'
    WHEN COALESCE(s.still_open, 0) > 0 THEN 'in_flight'
    WHEN COALESCE(s.unknown, 0) > 0 THEN 'ambiguous'
    WHEN COALESCE(s.many, 0) > 0 THEN 'rejected'
    ELSE 'planned' END
