-- invariant: J15
-- meaning: a cancelled job was cancelled by an audited decision or by its own last attempt, and no effect of it may have been applied
-- about: job
SELECT j.id
FROM django_jobs_job j
LEFT JOIN django_jobs_attempt a ON a.job_id = j.id AND a.number = j.fence
WHERE (j.state = 'cancelled' OR (j.state = 'dead_lettered' AND j.dead_reason = 'cancelled'))
    AND COALESCE(a.outcome, '') <> 'cancelled'
    AND NOT EXISTS (SELECT 1 FROM django_jobs_operatoraction o WHERE o.job_id = j.id AND o.action = 'cancel')
UNION
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_sideeffect e ON e.job_id = j.id
WHERE j.state = 'cancelled' AND e.state NOT IN ('planned', 'rejected', 'succeeded')
UNION
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_attempt a ON a.job_id = j.id
WHERE a.outcome = 'cancelled' AND a.number = j.fence AND a.generation = j.generation
    AND j.state <> 'cancelled' AND (j.state <> 'dead_lettered' OR j.dead_reason <> 'cancelled')
