-- invariant: B1
-- meaning: no member of a closed batch waits, runs or is a dead letter that kept it open; one that was replayed after the closing may
-- about: row
SELECT b.id
FROM django_jobs_batch b
JOIN django_jobs_job j ON j.batch_id = b.id
WHERE b.closed_at IS NOT NULL AND j.finished_at IS NULL
    AND (b.on_dead = 'block' OR (
        j.state <> 'dead_lettered' AND (j.generation = 1 OR j.generation_started_at <= b.closed_at)))
