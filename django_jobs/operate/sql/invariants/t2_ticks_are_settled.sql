-- invariant: T2
-- meaning: a tick that was run is one of a schedule that is known, and is settled there; it is there once
-- about: row
SELECT tick.id
FROM django_jobs_scheduletick tick
LEFT JOIN django_jobs_schedule s ON s.name = tick.schedule_name
WHERE s.id IS NULL OR (tick.action_id IS NULL AND tick.tick > s.settled_at)
UNION
SELECT tick.id
FROM django_jobs_scheduletick tick
JOIN (
    SELECT schedule_name, tick FROM django_jobs_scheduletick GROUP BY schedule_name, tick HAVING COUNT(*) > 1
) AS twice ON twice.schedule_name = tick.schedule_name AND twice.tick = tick.tick
