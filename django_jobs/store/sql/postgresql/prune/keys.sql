-- purpose: delete expired keys
-- guard: the caller holds the rows of the keys, and asked keys_due again after that
-- index: primary key
WITH stretch AS (
    INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
    VALUES (%(stretch_id)s::uuid, 'keys', %(first)s::uuid, %(last)s::uuid, %(many)s::int, %(finished_before)s::timestamptz, %(now)s::timestamptz)
)
DELETE FROM django_jobs_idempotencykey k USING unnest(%(ids)s::uuid[]) AS c(id) WHERE k.job_id = c.id
