-- purpose: delete what became of the jobs of requests that ended long ago
-- guard: the request has ended; rows that others hold are skipped
-- index: django_jobs_replay_item_once; there are few requests
DELETE FROM django_jobs_replayitem i
USING (
    SELECT t.id FROM django_jobs_replayrequest r JOIN django_jobs_replayitem t ON t.request_id = r.id
    WHERE r.state NOT IN ('waiting', 'running') AND r.finished_at < %(rows_before)s::timestamptz
    LIMIT %(limit)s::bigint
    FOR UPDATE OF t SKIP LOCKED
) AS old
WHERE i.id = old.id
RETURNING i.id
