-- invariant: T3
-- meaning: no job was enqueued by two ticks, and the next tick of a schedule is later than what is settled
-- about: row
SELECT tick.id
FROM django_jobs_scheduletick tick
JOIN (
    SELECT job_id FROM django_jobs_scheduletick WHERE outcome = 'enqueued' GROUP BY job_id HAVING COUNT(*) > 1
) AS twice ON twice.job_id = tick.job_id
WHERE tick.outcome = 'enqueued'
UNION ALL
SELECT s.id
FROM django_jobs_schedule s
WHERE s.next_tick <= s.settled_at
