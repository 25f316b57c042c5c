-- invariant: E12
-- meaning: a succeeded job owns no required effect that was rejected, and left none to another job that never applied it
-- about: job
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_sideeffect e ON e.job_id = j.id
WHERE j.state = 'succeeded' AND e.state = 'rejected' AND e.required
UNION
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_effectstake k ON k.job_id = j.id
JOIN django_jobs_sideeffect e ON e.id = k.effect_id
WHERE j.state = 'succeeded' AND k.owned AND k.required AND e.job_id <> j.id AND e.state <> 'succeeded'
    AND k.created_at <= j.finished_at
