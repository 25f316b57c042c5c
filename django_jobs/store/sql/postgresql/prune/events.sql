-- purpose: delete events with their deliveries and attempts, and note up to which number each ordering key was pruned
-- guard: the caller holds the rows of the events, and asked events_due again after that
-- index: primary keys; django_jobs_delivery_once; django_jobs_delivery_attempt_number
WITH chosen AS MATERIALIZED (
    SELECT e.id, e.ordering_key, e.key_seq
    FROM unnest(%(ids)s::uuid[]) AS c(id) JOIN django_jobs_outboxevent e ON e.id = c.id
),
sent AS MATERIALIZED (SELECT d.id FROM django_jobs_delivery d JOIN chosen c ON c.id = d.event_id),
attempts AS (DELETE FROM django_jobs_deliveryattempt a USING sent WHERE a.delivery_id = sent.id),
deliveries AS (DELETE FROM django_jobs_delivery d USING sent WHERE d.id = sent.id),
orders AS (
    INSERT INTO django_jobs_prunedorder AS o (ordering_key, last_seq)
    SELECT ordering_key, MAX(key_seq) FROM chosen WHERE ordering_key <> '' GROUP BY ordering_key ORDER BY ordering_key
    ON CONFLICT (ordering_key) DO UPDATE SET last_seq = GREATEST(o.last_seq, EXCLUDED.last_seq)
),
stretch AS (
    INSERT INTO django_jobs_prunedstretch (id, kind, first_job_id, last_job_id, "rows", finished_before, created_at)
    VALUES (%(stretch_id)s::uuid, 'events', %(first)s::uuid, %(last)s::uuid, %(many)s::int, %(finished_before)s::timestamptz, %(now)s::timestamptz)
)
DELETE FROM django_jobs_outboxevent e USING chosen c WHERE e.id = c.id
