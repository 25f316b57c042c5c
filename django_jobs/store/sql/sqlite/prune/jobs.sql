-- purpose: delete finished jobs with all of their rows; a live key keeps its expiry and how its job ended
-- guard: the caller holds the rows of the jobs, effects and keys, and asked jobs_due again after that
-- index: primary key; django_jobs_attempt_number; django_jobs_send_number; django_jobs_duplicate_newest
INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
VALUES (%(stretch_id)s, 'jobs', %(first)s, %(last)s, %(many)s, %(finished_before)s, %(now)s)
-- then
DELETE FROM django_jobs_idempotencykey
WHERE job_id IN (SELECT value FROM json_each(%(ids)s)) AND EXISTS (
    SELECT 1 FROM django_jobs_job j
    WHERE j.id = django_jobs_idempotencykey.job_id
        AND django_jobs_add(j.finished_at, django_jobs_idempotencykey.ttl_seconds) <= %(now)s)
-- then
UPDATE django_jobs_idempotencykey
SET expires_at = django_jobs_add(j.finished_at, ttl_seconds), final_state = j.state, final_resolution = j.resolution
FROM django_jobs_job j
WHERE j.id = django_jobs_idempotencykey.job_id AND j.id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_duplicateenqueue WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_cancelrequest WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_jobstep WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_effectadoption WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_effectstake
WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
    OR effect_id IN (SELECT id FROM django_jobs_sideeffect WHERE job_id IN (SELECT value FROM json_each(%(ids)s)))
-- then
DELETE FROM django_jobs_compensation WHERE original_job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_reconciliation
WHERE effect_id IN (SELECT id FROM django_jobs_sideeffect WHERE job_id IN (SELECT value FROM json_each(%(ids)s)))
-- then
DELETE FROM django_jobs_send
WHERE effect_id IN (SELECT id FROM django_jobs_sideeffect WHERE job_id IN (SELECT value FROM json_each(%(ids)s)))
-- then
DELETE FROM django_jobs_sideeffect WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_attempt WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_jobpayload WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_job WHERE id IN (SELECT value FROM json_each(%(ids)s))
