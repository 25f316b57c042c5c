-- purpose: write that a consumer takes a message of a source
-- guard: it has not taken it before (nothing is written otherwise); waits for whoever is taking it right now
-- index: django_jobs_inbox_once
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
INSERT INTO django_jobs_inboxmessage (
    id, consumer, source, message_id, data_digest, job_id, received_at, keep_until)
SELECT %(row)s::uuid, %(consumer)s::text, %(source)s::text, %(message_id)s::text, %(data_digest)s::text,
    %(job_id)s::uuid, clock.now, clock.now + %(keep)s::interval
FROM clock
ON CONFLICT DO NOTHING
RETURNING id
