-- purpose: forget that messages were taken
-- guard: the caller holds the rows, and asked messages_due again after that
-- index: primary key
WITH stretch AS (
    INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
    VALUES (%(stretch_id)s::uuid, 'messages', %(first)s::uuid, %(last)s::uuid, %(many)s::int, %(finished_before)s::timestamptz, %(now)s::timestamptz)
)
DELETE FROM django_jobs_inboxmessage r USING unnest(%(ids)s::uuid[]) AS c(id) WHERE r.id = c.id
