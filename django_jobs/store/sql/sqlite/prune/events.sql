-- purpose: delete events with their deliveries and attempts, and note up to which number each ordering key was pruned
-- guard: the caller holds the rows of the events, and asked events_due again after that
-- index: primary keys; django_jobs_delivery_once; django_jobs_delivery_attempt_number
INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
VALUES (%(stretch_id)s, 'events', %(first)s, %(last)s, %(many)s, %(finished_before)s, %(now)s)
-- then
INSERT INTO django_jobs_prunedorder (ordering_key, last_seq)
SELECT ordering_key, MAX(key_seq) FROM django_jobs_outboxevent
WHERE id IN (SELECT value FROM json_each(%(ids)s)) AND ordering_key <> ''
GROUP BY ordering_key
ON CONFLICT (ordering_key) DO UPDATE SET last_seq = MAX(last_seq, excluded.last_seq)
-- then
DELETE FROM django_jobs_deliveryattempt
WHERE delivery_id IN (
    SELECT id FROM django_jobs_delivery WHERE event_id IN (SELECT value FROM json_each(%(ids)s)))
-- then
DELETE FROM django_jobs_delivery WHERE event_id IN (SELECT value FROM json_each(%(ids)s))
-- then
DELETE FROM django_jobs_outboxevent WHERE id IN (SELECT value FROM json_each(%(ids)s))
