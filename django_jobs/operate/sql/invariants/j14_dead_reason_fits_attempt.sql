-- invariant: J14
-- meaning: the reason of a dead letter fits the end of its last attempt
-- about: job
-- "expired" and the kinds that nobody knows may meet a job between attempts; "cancelled" has an invariant of its own.
SELECT j.id
FROM django_jobs_job j
LEFT JOIN django_jobs_attempt a ON a.job_id = j.id AND a.number = j.fence AND a.generation = j.generation
WHERE j.state = 'dead_lettered' AND COALESCE(a.outcome, 'none') <> 'succeeded' AND NOT CASE
    WHEN j.dead_reason IN ('permanent', 'payload', 'effect_review') THEN
        COALESCE(a.outcome, 'none') = 'failed' AND a.error_class = 'permanent'
    WHEN j.dead_reason IN ('unknown_budget', 'unchanged') THEN
        COALESCE(a.outcome, 'none') = 'failed' AND a.error_class = 'unknown'
    WHEN j.dead_reason = 'age' THEN
        (COALESCE(a.outcome, 'none') = 'failed' AND a.error_class = 'transient')
        OR (COALESCE(a.outcome, 'none') = 'lost' AND a.loss_cause IN ('exit', 'silent'))
    WHEN j.dead_reason = 'poison' THEN
        COALESCE(a.outcome, 'none') = 'lost'
        AND ((a.loss_cause = 'exit' AND a.alone <> '') OR (a.loss_cause = 'silent' AND a.alone = 'worker'))
    WHEN j.dead_reason = 'no_progress' THEN
        (COALESCE(a.outcome, 'none') = 'failed' AND a.error_class = 'unknown')
        OR (COALESCE(a.outcome, 'none') = 'lost' AND a.loss_cause IN ('expired', 'ended'))
    WHEN j.dead_reason = 'effect_open' THEN COALESCE(a.outcome, 'none') = 'failed'
    ELSE TRUE END
