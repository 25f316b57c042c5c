-- purpose: delete requests to replay many with what is left of their items
-- guard: the caller holds the rows, and asked replays_due again after that
-- index: primary key; django_jobs_replay_item_once
INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
VALUES (%(stretch_id)s, 'replays', %(first)s, %(last)s, %(many)s, %(finished_before)s, %(now)s)
-- then
DELETE FROM django_jobs_replayitem WHERE request_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_replayrequest WHERE id IN (SELECT value FROM json_each(%(ids)s))
