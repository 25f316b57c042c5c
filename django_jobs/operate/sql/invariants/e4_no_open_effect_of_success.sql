-- invariant: E4
-- meaning: a succeeded job owns no effect of unknown outcome
-- about: job
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_sideeffect e ON e.job_id = j.id
WHERE j.state = 'succeeded' AND e.state IN ('planned', 'in_flight', 'ambiguous')
