-- invariant: J3
-- meaning: the counters agree with the attempts of the current generation
-- about: job
-- A dead letter's last failure may be uncharged (waiting for evidence took too long), and then it left the losses as they
-- were. Snoozes that wait for evidence are free of charge, and an attempt does not say which kind it was: hence a range.
SELECT j.id
FROM django_jobs_job j
LEFT JOIN (
    SELECT a.job_id,
        SUM(CASE WHEN a.outcome = 'failed' AND a.error_class = 'unknown' THEN 1 ELSE 0 END) AS unknowns,
        SUM(CASE WHEN a.outcome = 'failed' AND a.error_class = 'transient' THEN 1 ELSE 0 END) AS transients,
        SUM(CASE WHEN a.outcome = 'released' OR (a.outcome = 'lost' AND a.loss_cause IN ('expired', 'ended')) THEN 1 ELSE 0 END) AS freed,
        SUM(CASE WHEN a.outcome = 'snoozed' THEN 1 ELSE 0 END) AS snoozed,
        SUM(CASE WHEN a.outcome = 'lost' AND a.loss_cause = 'exit' AND a.number > COALESCE(r.number, 0) THEN 1 ELSE 0 END) AS exits,
        SUM(CASE WHEN a.outcome = 'lost' AND a.loss_cause = 'silent' AND a.number > COALESCE(r.number, 0) THEN 1 ELSE 0 END) AS silences
    FROM django_jobs_attempt a
    JOIN django_jobs_job o ON o.id = a.job_id AND o.generation = a.generation
    LEFT JOIN (
        SELECT job_id, generation, MAX(number) AS number
        FROM django_jobs_attempt WHERE outcome IN ('succeeded', 'failed', 'snoozed') GROUP BY job_id, generation
    ) r ON r.job_id = a.job_id AND r.generation = a.generation
    GROUP BY a.job_id
) a ON a.job_id = j.id
LEFT JOIN django_jobs_attempt last_one ON last_one.job_id = j.id AND last_one.number = j.fence
WHERE COALESCE(a.transients, 0) <> j.transient_count
    OR j.unknown_count > COALESCE(a.unknowns, 0)
    OR j.unknown_count < COALESCE(a.unknowns, 0) - CASE WHEN j.state = 'dead_lettered' THEN 1 ELSE 0 END
    OR j.unchanged_count > j.unknown_count
    OR j.free_count < COALESCE(a.freed, 0)
    OR j.free_count > COALESCE(a.freed, 0) + COALESCE(a.snoozed, 0)
    OR ((j.exit_lost_count <> COALESCE(a.exits, 0) OR j.silent_lost_count <> COALESCE(a.silences, 0))
        AND NOT (j.state = 'dead_lettered' AND COALESCE(last_one.outcome, '') = 'failed'))
    OR j.lost_count <> j.exit_lost_count + j.silent_lost_count
