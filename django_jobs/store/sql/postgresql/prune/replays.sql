-- purpose: delete requests to replay many with what is left of their items
-- guard: the caller holds the rows, and asked replays_due again after that
-- index: primary key; django_jobs_replay_item_once
WITH stretch AS (
    INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
    VALUES (%(stretch_id)s::uuid, 'replays', %(first)s::uuid, %(last)s::uuid, %(many)s::int, %(finished_before)s::timestamptz, %(now)s::timestamptz)
),
items AS (DELETE FROM django_jobs_replayitem i USING unnest(%(ids)s::uuid[]) AS c(id) WHERE i.request_id = c.id)
DELETE FROM django_jobs_replayrequest r USING unnest(%(ids)s::uuid[]) AS c(id) WHERE r.id = c.id
