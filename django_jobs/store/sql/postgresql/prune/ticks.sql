-- purpose: delete old rows of ticks
-- guard: old, and settled: nobody runs such a tick a second time; rows that others hold are skipped
-- index: primary key
DELETE FROM django_jobs_scheduletick t
USING (
    SELECT tick.id FROM django_jobs_scheduletick tick
    WHERE tick.id <= %(upto)s::uuid AND tick.created_at < %(content_before)s::timestamptz AND EXISTS (
        SELECT 1 FROM django_jobs_schedule s WHERE s.name = tick.schedule_name AND s.settled_at >= tick.tick)
    ORDER BY tick.id LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
) AS old
WHERE t.id = old.id
RETURNING t.id
