-- purpose: delete messages that were put aside
-- guard: the caller holds the rows, and asked quarantine_due again after that
-- index: primary key
INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
VALUES (%(stretch_id)s, 'quarantine', %(first)s, %(last)s, %(many)s, %(finished_before)s, %(now)s)
-- then
DELETE FROM django_jobs_quarantine WHERE id IN (SELECT value FROM json_each(%(ids)s))
