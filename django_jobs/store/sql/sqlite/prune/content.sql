-- purpose: remove what can be read of finished jobs and of their effects, expired keys with their digests included
-- guard: the caller holds the rows of the jobs, effects and keys, and asked content_due again after that
-- index: primary key; django_jobs_attempt_number; django_jobs_send_number
INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
VALUES (%(stretch_id)s, 'content', %(first)s, %(last)s, %(many)s, %(finished_before)s, %(now)s)
-- then
UPDATE django_jobs_attempt SET message = '', traceback = '', error_fingerprint = ''
WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
    AND (message <> '' OR traceback <> '' OR error_fingerprint <> '')
-- then
UPDATE django_jobs_jobstep SET result = 'null' WHERE job_id IN (SELECT value FROM json_each(%(ids)s)) AND result <> 'null'
-- then
UPDATE django_jobs_send SET request_digest = '', reason = ''
WHERE effect_id IN (SELECT id FROM django_jobs_sideeffect WHERE job_id IN (SELECT value FROM json_each(%(ids)s)))
-- then
UPDATE django_jobs_reconciliation SET evidence = '{}'
WHERE effect_id IN (SELECT id FROM django_jobs_sideeffect WHERE job_id IN (SELECT value FROM json_each(%(ids)s)))
    AND evidence <> '{}'
-- then
UPDATE django_jobs_sideeffect
SET request = '', request_digest = '', result = '{}', revision = revision + 1,
    review_reason = CASE review_reason WHEN '' THEN '' ELSE 'removed' END
WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_jobpayload WHERE job_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_idempotencykey
WHERE job_id IN (SELECT value FROM json_each(%(ids)s)) AND EXISTS (
    SELECT 1 FROM django_jobs_job j
    WHERE j.id = django_jobs_idempotencykey.job_id
        AND django_jobs_add(j.finished_at, django_jobs_idempotencykey.ttl_seconds) <= %(now)s)
-- then
UPDATE django_jobs_job SET content_removed_at = %(now)s, payload_fingerprint = '', error_fingerprint = ''
WHERE id IN (SELECT value FROM json_each(%(ids)s))
