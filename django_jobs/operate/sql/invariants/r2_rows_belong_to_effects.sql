-- invariant: R2
-- meaning: no send, reconciliation, adoption or stake belongs to an effect that does not exist, and every question has an asker
-- about: row
SELECT c.id FROM django_jobs_send c LEFT JOIN django_jobs_sideeffect e ON e.id = c.effect_id WHERE e.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_effectadoption c LEFT JOIN django_jobs_sideeffect e ON e.id = c.effect_id WHERE e.id IS NULL
UNION ALL
SELECT c.id FROM django_jobs_effectstake c LEFT JOIN django_jobs_sideeffect e ON e.id = c.effect_id WHERE e.id IS NULL
UNION ALL
SELECT c.id
FROM django_jobs_reconciliation c
LEFT JOIN django_jobs_sideeffect e ON e.id = c.effect_id
LEFT JOIN django_jobs_attempt a ON a.id = c.attempt_id
WHERE e.id IS NULL OR (c.attempt_id IS NULL AND c.actor = '')
    OR (c.attempt_id IS NOT NULL AND a.id IS NULL AND NOT EXISTS (
        -- asked for a job that sent before the effect went over to another one, and was pruned since
        SELECT 1
        FROM django_jobs_send s
        JOIN django_jobs_prunedstretch t
            ON t.kind = 'jobs' AND t.last_job_id >= s.job_id AND t.first_job_id <= s.job_id
        LEFT JOIN django_jobs_job j ON j.id = s.job_id
        WHERE s.effect_id = c.effect_id AND j.id IS NULL))
