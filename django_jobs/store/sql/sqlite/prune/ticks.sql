-- purpose: delete old rows of ticks
-- guard: old, and settled: nobody runs such a tick a second time
-- index: primary key
DELETE FROM django_jobs_scheduletick
WHERE id IN (
    SELECT tick.id FROM django_jobs_scheduletick tick
    WHERE tick.id <= %(upto)s AND tick.created_at < %(content_before)s AND EXISTS (
        SELECT 1 FROM django_jobs_schedule s WHERE s.name = tick.schedule_name AND s.settled_at >= tick.tick)
    ORDER BY tick.id LIMIT %(limit)s)
RETURNING id
